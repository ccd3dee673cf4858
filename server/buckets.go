package server

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/external"
)

// buckets are the configured buckets, each guarded by retries, limits and metrics.
type buckets struct {
	cfg    Config
	state  *state
	logger *slog.Logger
	byName map[string]*bucket
}

type bucket struct {
	external.Store // guarded
	conf           Bucket
	raw            Store
	mu             struct {
		sync.Mutex
		caps   external.Capabilities
		probed bool
		err    error // of the last probe
	}
}

// Capabilities are those of the last probe, also one of an earlier start.
func (b *bucket) Capabilities() external.Capabilities {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.caps
}

// firstLook bounds the check of a bucket at a server's first start.
const firstLook = 10 * time.Second

// openBuckets connects to the buckets. At the first start each must answer, so that a wrong name or key is said at once; later a server starts without
// external storage, for what it has cached.
func openBuckets(ctx context.Context, cfg Config, on *Platform, st *state, reg prometheus.Registerer, logger *slog.Logger) (*buckets, error) {
	bs := &buckets{cfg: cfg, state: st, logger: logger, byName: map[string]*bucket{}}
	m := external.NewMetrics(reg)
	for _, c := range cfg.Buckets {
		raw, err := on.OpenStore(ctx, c)
		if err != nil {
			return nil, err
		}
		b := &bucket{conf: c, raw: raw, Store: external.Final(external.Guard(raw, m, cfg.S3Requests, external.RetryConfig{Total: time.Duration(cfg.S3Timeout)}))}
		caps, known := st.id.Buckets[c.DirName]
		b.mu.caps = caps
		if !known {
			if err := b.look(ctx, cfg.MetadataPrefix); err != nil {
				return nil, err
			}
			st.id.Buckets[c.DirName] = b.Capabilities()
		}
		bs.byName[c.DirName] = b
	}
	return bs, nil
}

// look asks for one key and probes.
func (b *bucket) look(ctx context.Context, prefix string) error {
	ctx, cancel := context.WithTimeout(ctx, firstLook)
	defer cancel()
	if _, err := b.raw.List(ctx, external.ListRequest{MaxKeys: 1}); err != nil {
		return objcache.Errorf(objcache.KindOf(err), "bucket %s at %s: %w", b.conf.BucketName, b.conf.Endpoint, err)
	}
	return b.probe(ctx, prefix)
}

func (b *bucket) probe(ctx context.Context, prefix string) error {
	if prefix == "" {
		prefix = ".objcache/"
	}
	caps, err := b.raw.Probe(ctx, prefix)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.err = err
	if err == nil {
		b.mu.caps, b.mu.probed = caps, true
	}
	return err
}

// probeLater probes the buckets that an earlier start had probed, as soon as they answer.
func (bs *buckets) probeLater(life context.Context) error {
	for _, b := range bs.byName {
		for {
			b.mu.Lock()
			done := b.mu.probed
			b.mu.Unlock()
			if done {
				break
			}
			ctx, cancel := context.WithTimeout(life, time.Minute)
			err := b.probe(ctx, bs.cfg.MetadataPrefix)
			cancel()
			if err == nil {
				break
			}
			t := time.NewTimer(5 * time.Second)
			select {
			case <-t.C:
			case <-life.Done():
				t.Stop()
				return life.Err()
			}
		}
	}
	return nil
}

func (bs *buckets) stores() map[string]external.Store {
	out := map[string]external.Store{}
	for n, b := range bs.byName {
		out[n] = b
	}
	return out
}

func (bs *buckets) names() []string {
	var out []string
	for n := range bs.byName {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}
