package faultproxy

import (
	"context"
	"io"
	"sync"
	"time"
)

// pacer spaces bytes so that their rate is bounded, whoever sends them.
type pacer struct {
	mu struct {
		sync.Mutex
		rate int64     // bytes per second; 0: unbounded
		next time.Time // when the line is free
	}
}

func (p *pacer) setRate(bytesPerSecond int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.rate, p.mu.next = bytesPerSecond, time.Time{}
}

// wait returns when n more bytes have gone over the line.
func (p *pacer) wait(ctx context.Context, n int) error {
	if d := p.reserve(n); !wait(ctx, d) {
		return ctx.Err()
	}
	return nil
}

func (p *pacer) reserve(n int) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.rate <= 0 {
		return 0
	}
	now := time.Now()
	if p.mu.next.Before(now) {
		p.mu.next = now
	}
	p.mu.next = p.mu.next.Add(time.Duration(float64(n) / float64(p.mu.rate) * float64(time.Second)))
	return p.mu.next.Sub(now)
}

// pacedBody is a request's body on its way in.
type pacedBody struct {
	io.ReadCloser
	p   *Proxy
	ctx context.Context
}

func (b *pacedBody) Read(buf []byte) (int, error) {
	n, err := b.ReadCloser.Read(buf)
	if n > 0 {
		b.p.count(n, 0)
		if perr := b.p.pace.wait(b.ctx, n); perr != nil {
			return n, perr
		}
	}
	return n, err
}
