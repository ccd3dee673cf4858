package external

import (
	"context"
	"io"
	"math/rand/v2"
	"time"

	"github.com/objcache/objcache"
)

// RetryConfig bounds repetitions. The zero value means the defaults.
type RetryConfig struct {
	// Total bounds a reading request, its repetitions included. Default 60 s.
	Total time.Duration
	// Mutating bounds a changing request, its repetitions included: no request is on its way from here any more once it
	// is over. Default 30 s.
	Mutating time.Duration
	// Base and Max are the first and the longest pause. A pause is random between 0 and min(Max, Base * 2^n): full jitter,
	// https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/. Default 100 ms and 5 s.
	Base, Max time.Duration
}

func (c RetryConfig) withDefaults() RetryConfig {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&c.Total, 60*time.Second)
	def(&c.Mutating, 30*time.Second)
	def(&c.Base, 100*time.Millisecond)
	def(&c.Max, 5*time.Second)
	return c
}

// Retry repeats requests that end as Unavailable, until they end otherwise or the time is over; then the error is that of the
// last attempt. A repeated CompleteUpload or conditional write whose first reply was lost may end as NoUpload or
// Precondition though it took effect: that is handed on as it is. A body is fetched again only while none of its bytes were
// delivered, and then of the same ETag; after that the caller resumes with an offset.
func Retry(s Store, c RetryConfig) Store {
	r := &retry{s: s, c: c.withDefaults()}
	r.around = around{Store: s, run: r.do}
	return r
}

type retry struct {
	around
	s Store
	c RetryConfig
}

func (r *retry) do(ctx context.Context, op Op, request func(context.Context) error) error {
	total := r.c.Total
	if op.Mutates() {
		total = r.c.Mutating
	}
	within, cancel := context.WithTimeout(ctx, total)
	defer cancel()
	for n := 0; ; n++ {
		err := request(within)
		if objcache.KindOf(err) != objcache.Unavailable || !r.pause(within, n) {
			return r.last(ctx, err)
		}
	}
}

// pause waits before attempt n+1 and reports whether there is time for it.
func (r *retry) pause(ctx context.Context, n int) bool {
	longest := min(r.c.Max, r.c.Base<<min(n, 20))
	d := rand.N(longest) + 1
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= d {
		return false
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// last is the error handed on: a caller who cancelled hears that, whatever the attempt ended with.
func (r *retry) last(ctx context.Context, err error) error {
	if objcache.KindOf(err) == objcache.Unavailable && ctx.Err() == context.Canceled {
		return objcache.Errorf(objcache.Interrupted, "external: %w", err)
	}
	return err
}

// Get is retried as a whole until the body's first byte.
func (r *retry) Get(ctx context.Context, key string, off, length int64, ifMatch string) (io.ReadCloser, Object, error) {
	b := &retryBody{r: r, ctx: ctx, key: key, off: off, length: length, deadline: time.Now().Add(r.c.Total)}
	obj, err := b.open(ifMatch)
	if err != nil {
		return nil, Object{}, err
	}
	b.etag = obj.ETag
	return b, obj, nil
}

// retryBody is read by one goroutine, as any io.Reader.
type retryBody struct {
	r           *retry
	ctx         context.Context // the caller's
	key         string
	off, length int64
	etag        string
	deadline    time.Time // of the last attempt to get a first byte
	attempts    int

	body    io.ReadCloser
	cancel  context.CancelFunc
	started bool
}

// open asks until there is an answer. The deadline ends the wait for one, but not a body that has begun.
func (b *retryBody) open(ifMatch string) (Object, error) {
	for {
		obj, err := b.openOnce(ifMatch)
		if objcache.KindOf(err) != objcache.Unavailable || !b.pause() {
			return obj, b.r.last(b.ctx, err)
		}
	}
}

func (b *retryBody) pause() bool {
	ctx, cancel := context.WithDeadline(b.ctx, b.deadline)
	defer cancel()
	b.attempts++
	return b.r.pause(ctx, b.attempts-1)
}

func (b *retryBody) openOnce(ifMatch string) (Object, error) {
	ctx, cancel := context.WithCancel(b.ctx)
	timer := time.AfterFunc(time.Until(b.deadline), cancel)
	body, obj, err := b.r.s.Get(ctx, b.key, b.off, b.length, ifMatch)
	late := !timer.Stop()
	switch {
	case err == nil && !late:
		b.body, b.cancel = body, cancel
		return obj, nil
	case err == nil:
		_ = body.Close() // its context is cancelled
		err = context.DeadlineExceeded
	}
	cancel()
	if late && b.ctx.Err() == nil {
		err = objcache.Errorf(objcache.Unavailable, "external: get %q: no answer within %v (%v)", b.key, b.r.c.Total, err)
	}
	return Object{}, err
}

func (b *retryBody) Read(p []byte) (int, error) {
	for {
		n, err := b.body.Read(p)
		b.started = b.started || n > 0
		if b.started || objcache.KindOf(err) != objcache.Unavailable || !b.pause() {
			return n, err
		}
		_ = b.Close() // the attempt has failed already
		if _, err := b.open(b.etag); err != nil {
			b.body, b.cancel = failed{err}, func() {}
			return 0, err
		}
	}
}

func (b *retryBody) Close() error {
	err := b.body.Close()
	b.cancel()
	return err
}

// failed is the body after its last attempt.
type failed struct{ err error }

func (f failed) Read([]byte) (int, error) { return 0, f.err }
func (f failed) Close() error             { return nil }
