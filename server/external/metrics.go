package external

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/objcache/objcache"
	"github.com/prometheus/client_golang/prometheus"
)

// Metrics counts requests to external storage, each attempt by itself. One value serves all buckets of a process.
type Metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	bytes    *prometheus.CounterVec
}

// NewMetrics registers the metrics. It panics if reg has them already.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "objcache_external_requests_total",
			Help: "Requests to external storage by operation and result (ok or the kind of the error). A Get counts when its body is closed.",
		}, []string{"op", "result"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "objcache_external_request_duration_seconds",
			Help:    "Time from a request to its answer; for a Get to the beginning of its body.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 16), // 1 ms to 33 s
		}, []string{"op"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "objcache_external_bytes_total",
			Help: "Bytes of objects read from and written to external storage.",
		}, []string{"direction"}),
	}
	reg.MustRegister(m.requests, m.seconds, m.bytes)
	return m
}

// Wrap counts what goes to s.
func (m *Metrics) Wrap(s Store) Store {
	d := &metered{s: s, m: m}
	d.around = around{Store: s, run: d.do}
	return d
}

type metered struct {
	around
	s Store
	m *Metrics
}

func (d *metered) do(ctx context.Context, op Op, request func(context.Context) error) error {
	start := time.Now()
	err := request(ctx)
	d.m.seconds.WithLabelValues(string(op)).Observe(time.Since(start).Seconds())
	d.m.requests.WithLabelValues(string(op), result(err)).Inc()
	return err
}

func (d *metered) Put(ctx context.Context, key string, body Body, meta map[string]string, c Condition) (string, error) {
	etag, err := d.around.Put(ctx, key, body, meta, c)
	return etag, d.wrote(body, err)
}

func (d *metered) UploadPart(ctx context.Context, key, id string, number int32, body Body) (string, error) {
	etag, err := d.around.UploadPart(ctx, key, id, number, body)
	return etag, d.wrote(body, err)
}

func (d *metered) wrote(body Body, err error) error {
	if err == nil {
		d.m.bytes.WithLabelValues("written").Add(float64(body.Size()))
	}
	return err
}

func (d *metered) Get(ctx context.Context, key string, off, length int64, ifMatch string) (io.ReadCloser, Object, error) {
	start := time.Now()
	body, obj, err := d.s.Get(ctx, key, off, length, ifMatch)
	d.m.seconds.WithLabelValues(string(OpGet)).Observe(time.Since(start).Seconds())
	if err != nil {
		d.m.requests.WithLabelValues(string(OpGet), result(err)).Inc()
		return nil, Object{}, err
	}
	return &meteredBody{ReadCloser: body, m: d.m}, obj, nil
}

type meteredBody struct {
	io.ReadCloser
	m      *Metrics
	err    error
	closed bool
}

func (b *meteredBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.m.bytes.WithLabelValues("read").Add(float64(n))
	if err != nil && !errors.Is(err, io.EOF) {
		b.err = err
	}
	return n, err
}

func (b *meteredBody) Close() error {
	if !b.closed {
		b.closed = true
		b.m.requests.WithLabelValues(string(OpGet), result(b.err)).Inc()
	}
	return b.ReadCloser.Close()
}

// results are the label values of the kinds that a store may answer with; the rest is "other".
var results = map[objcache.Kind]string{
	objcache.NotExist: "not_exist", objcache.Permission: "permission", objcache.Precondition: "precondition", objcache.NoUpload: "no_upload",
	objcache.Unavailable: "unavailable", objcache.Interrupted: "interrupted", objcache.Invalid: "invalid", objcache.IO: "io",
	objcache.NoSpace: "no_space", objcache.NotSupported: "not_supported",
}

func result(err error) string {
	if err == nil {
		return "ok"
	}
	if r, ok := results[objcache.KindOf(err)]; ok {
		return r
	}
	return "other"
}
