package bubble

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/external"
	"github.com/objcache/objcache/server/external/memstore"
)

// chaos makes a bucket behave as badly as real ones do. It is off until it is turned on.
type chaos struct {
	faults *Faults
	on     atomic.Bool
	down   atomic.Bool // everything is 503
	late   sync.WaitGroup
	mu     struct {
		sync.Mutex
		rng *rand.Rand
	}
	percent int  // of requests that suffer
	lateToo bool // some take effect after they were given up
}

func newChaos(seed uint64, percent int, late bool, f *Faults) *chaos {
	c := &chaos{faults: f, percent: percent, lateToo: late}
	c.mu.rng = rand.New(rand.NewPCG(seed, 0x7333))
	return c
}

func (c *chaos) intn(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.rng.IntN(n)
}

// strike draws whether a request suffers a fault that takes share of all faults' 100.
func (c *chaos) strike(share int) bool {
	return c.on.Load() && c.intn(10_000) < c.percent*share
}

func (c *chaos) match(kind string, share int, suits func(external.Op) bool) func(memstore.Request) bool {
	return func(r memstore.Request) bool {
		if (suits != nil && !suits(r.Op)) || !c.strike(share) {
			return false
		}
		c.faults.Add("s3: " + kind)
		return true
	}
}

func one(ops ...external.Op) func(external.Op) bool {
	return func(op external.Op) bool {
		for _, o := range ops {
			if op == o {
				return true
			}
		}
		return false
	}
}

// inject registers all kinds of faults with a bucket.
func (c *chaos) inject(s *memstore.Store) {
	add := func(kind string, share int, suits func(external.Op) bool, f memstore.Fault) {
		f.Match = c.match(kind, share, suits)
		s.Inject(f)
	}
	cut := int64(1)
	s.Inject(memstore.Fault{Before: memstore.Unavailable, Match: func(memstore.Request) bool {
		if !c.down.Load() {
			return false
		}
		c.faults.Add("s3: refused during an outage")
		return true
	}})
	add("500 or 503", 30, nil, memstore.Fault{Before: memstore.Unavailable})
	add("slow", 20, nil, memstore.Fault{Delay: 700 * time.Millisecond})
	add("very slow", 3, nil, memstore.Fault{Delay: 9 * time.Second})
	add("reply lost after the effect", 25, external.Op.Mutates, memstore.Fault{After: memstore.Unavailable})
	add("409 for a conditional write", 8, one(external.OpPut, external.OpCopy, external.OpCompleteUpload), memstore.Fault{Before: memstore.Unavailable})
	add("complete: 200 with an error body", 60, one(external.OpCompleteUpload), memstore.Fault{Before: memstore.Unavailable})
	add("complete: 200 with an error body after the effect", 60, one(external.OpCompleteUpload), memstore.Fault{After: memstore.Unavailable})
	add("NoSuchUpload", 30, one(external.OpUploadPart, external.OpCopyPart),
		memstore.Fault{Before: objcache.Errorf(objcache.NoUpload, "memstore: injected NoSuchUpload")})
	add("body cut", 30, one(external.OpGet), memstore.Fault{Cut: &cut})
}

// wire is one server's way to the bucket. It ends with the server's life; with chaos.lateToo, what is on its way then may still arrive.
type wire struct {
	*memstore.Store
	c    *chaos
	log  *slog.Logger
	cut  atomic.Bool
	life context.Context // ends when the server is cut off
	end  context.CancelFunc
}

func newWire(s *memstore.Store, c *chaos, l *slog.Logger) *wire {
	w := &wire{Store: s, c: c, log: l}
	w.life, w.end = context.WithCancel(context.Background())
	return w
}

func (w *wire) sever() {
	w.cut.Store(true)
	w.end()
}

// Probe knows the answer.
func (w *wire) Probe(context.Context, string) (external.Capabilities, error) {
	return w.Capabilities(), nil
}

type answer[T any] struct {
	v   T
	err error
}

// send runs a request, unless the server is cut off. Some requests take effect only after whoever sent them has given up, within their deadline.
func send[T any](ctx context.Context, w *wire, op external.Op, key string, request func(context.Context) (T, error)) (T, error) {
	var zero T
	if w.cut.Load() {
		return zero, objcache.Errorf(objcache.Unavailable, "cut off")
	}
	delay := time.Duration(0)
	if end, ok := ctx.Deadline(); ok && op.Mutates() && w.c.lateToo && w.c.strike(12) {
		if delay = time.Duration(w.c.intn(20_000)) * time.Millisecond; delay > time.Until(end)-time.Second {
			delay = 0
		}
	}
	got := make(chan answer[T], 1)
	w.c.late.Go(func() {
		if delay > 0 {
			w.c.faults.Add("s3: late effect of a request given up")
			time.Sleep(delay)
		}
		ctx := ctx
		if w.c.lateToo {
			ctx = context.WithoutCancel(ctx)
		} else {
			var cancel context.CancelFunc
			ctx, cancel = context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(w.life, cancel)()
		}
		v, err := request(ctx)
		w.log.Debug("s3", "op", op, "key", key, "result", fmt.Sprintf("%.60v", v), "error", err)
		got <- answer[T]{v, err}
	})
	var gaveUp <-chan time.Time
	if delay > 0 {
		t := time.NewTimer(delay / 2)
		defer t.Stop()
		gaveUp = t.C
	}
	select {
	case a := <-got:
		if w.cut.Load() {
			return zero, objcache.Errorf(objcache.Unavailable, "cut off")
		}
		return a.v, a.err
	case <-gaveUp:
		return zero, memstore.Unavailable
	case <-ctx.Done():
		return zero, ctx.Err()
	}
}

// copyBody takes the bytes before the caller has them back.
func copyBody(b external.Body) (external.Body, error) {
	if _, err := b.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(b)
	return bytes.NewReader(data), err
}

type nothing struct{}

func (w *wire) List(ctx context.Context, r external.ListRequest) (external.Page, error) {
	return send(ctx, w, external.OpList, r.Prefix, func(ctx context.Context) (external.Page, error) { return w.Store.List(ctx, r) })
}

func (w *wire) Head(ctx context.Context, key string) (external.Object, error) {
	return send(ctx, w, external.OpHead, key, func(ctx context.Context) (external.Object, error) { return w.Store.Head(ctx, key) })
}

func (w *wire) Get(ctx context.Context, key string, off, length int64, ifMatch string) (io.ReadCloser, external.Object, error) {
	if w.cut.Load() {
		return nil, external.Object{}, objcache.Errorf(objcache.Unavailable, "cut off")
	}
	return w.Store.Get(ctx, key, off, length, ifMatch)
}

func (w *wire) Put(ctx context.Context, key string, body external.Body, meta map[string]string, c external.Condition) (string, error) {
	b, err := copyBody(body)
	if err != nil {
		return "", err
	}
	return send(ctx, w, external.OpPut, key, func(ctx context.Context) (string, error) { return w.Store.Put(ctx, key, b, meta, c) })
}

func (w *wire) Copy(ctx context.Context, dst, src, srcETag string, meta map[string]string, c external.Condition) (string, error) {
	return send(ctx, w, external.OpCopy, dst, func(ctx context.Context) (string, error) { return w.Store.Copy(ctx, dst, src, srcETag, meta, c) })
}

func (w *wire) Delete(ctx context.Context, key string) error {
	_, err := send(ctx, w, external.OpDelete, key, func(ctx context.Context) (nothing, error) { return nothing{}, w.Store.Delete(ctx, key) })
	return err
}

func (w *wire) CreateUpload(ctx context.Context, key string, meta map[string]string) (string, error) {
	return send(ctx, w, external.OpCreateUpload, key, func(ctx context.Context) (string, error) { return w.Store.CreateUpload(ctx, key, meta) })
}

func (w *wire) UploadPart(ctx context.Context, key, id string, number int32, body external.Body) (string, error) {
	b, err := copyBody(body)
	if err != nil {
		return "", err
	}
	return send(ctx, w, external.OpUploadPart, key, func(ctx context.Context) (string, error) { return w.Store.UploadPart(ctx, key, id, number, b) })
}

func (w *wire) CopyPart(ctx context.Context, key, id string, number int32, src string, off, length int64, srcETag string) (string, error) {
	return send(ctx, w, external.OpCopyPart, key, func(ctx context.Context) (string, error) {
		return w.Store.CopyPart(ctx, key, id, number, src, off, length, srcETag)
	})
}

func (w *wire) CompleteUpload(ctx context.Context, key, id string, parts []external.Part, c external.Condition) (string, error) {
	return send(ctx, w, external.OpCompleteUpload, key, func(ctx context.Context) (string, error) {
		return w.Store.CompleteUpload(ctx, key, id, parts, c)
	})
}

func (w *wire) AbortUpload(ctx context.Context, key, id string) error {
	_, err := send(ctx, w, external.OpAbortUpload, key, func(ctx context.Context) (nothing, error) {
		return nothing{}, w.Store.AbortUpload(ctx, key, id)
	})
	return err
}

func (w *wire) ListUploads(ctx context.Context, key string) ([]external.Upload, error) {
	return send(ctx, w, external.OpListUploads, key, func(ctx context.Context) ([]external.Upload, error) { return w.Store.ListUploads(ctx, key) })
}
