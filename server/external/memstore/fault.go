package memstore

import (
	"context"
	"io"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/external"
)

// Request is what a fault or hook sees of a request. Key is the prefix for List, the target for copies.
type Request struct {
	Op  external.Op
	Key string
}

// Fault changes how requests end. Of several that match, each applies, in the order of Inject.
type Fault struct {
	Op    external.Op          // "" for every operation
	Match func(r Request) bool // nil for every key
	Skip  int                  // that many matching requests pass first
	Times int                  // then that many are hit; 0: all

	// Hook runs first, without locks held; its error fails the request before the effect.
	Hook func(ctx context.Context, r Request) error
	// Delay passes before the effect.
	Delay time.Duration
	// Before fails the request without effect.
	Before error
	// After fails the request once it has taken effect: a lost reply.
	After error
	// Cut ends the body of a Get after that many bytes with io.ErrUnexpectedEOF; nil leaves it whole.
	Cut *int64
}

// Unavailable is the usual error to inject.
var Unavailable = objcache.Errorf(objcache.Unavailable, "memstore: injected")

type fault struct {
	Fault
	seen int
}

// Inject adds a fault; remove takes it away again.
func (s *Store) Inject(f Fault) (remove func()) {
	added := &fault{Fault: f}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.faults = append(s.mu.faults, added)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		kept := make([]*fault, 0, len(s.mu.faults))
		for _, g := range s.mu.faults {
			if g != added {
				kept = append(kept, g)
			}
		}
		s.mu.faults = kept
	}
}

// begin counts a request and returns the faults that hit it.
func (s *Store) begin(r Request) []Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.counts[r.Op]++
	var hit []Fault
	for _, f := range s.mu.faults {
		if f.Op != "" && f.Op != r.Op || f.Match != nil && !f.Match(r) {
			continue
		}
		f.seen++
		if f.seen > f.Skip && (f.Times == 0 || f.seen <= f.Skip+f.Times) {
			hit = append(hit, f.Fault)
		}
	}
	return hit
}

// request runs one request: what faults do before it, its effect under the lock, what faults do after it.
func (s *Store) request(ctx context.Context, op external.Op, key string, effectLocked func() error) error {
	_, err := s.requestFaults(ctx, op, key, effectLocked)
	return err
}

func (s *Store) requestFaults(ctx context.Context, op external.Op, key string, effectLocked func() error) ([]Fault, error) {
	r := Request{Op: op, Key: key}
	hit := s.begin(r)
	for _, f := range hit {
		if err := f.before(ctx, r); err != nil {
			return hit, err
		}
	}
	if err := ctx.Err(); err != nil {
		return hit, err
	}
	s.mu.Lock()
	err := effectLocked()
	s.mu.Unlock()
	if err != nil {
		return hit, err
	}
	for _, f := range hit {
		if f.After != nil {
			return hit, f.After
		}
	}
	return hit, nil
}

func (f Fault) before(ctx context.Context, r Request) error {
	if f.Hook != nil {
		if err := f.Hook(ctx, r); err != nil {
			return err
		}
	}
	if f.Delay > 0 {
		t := time.NewTimer(f.Delay)
		defer t.Stop()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
		}
	}
	return f.Before
}

// body is a Get's: it counts what leaves and is cut where a fault says so.
type body struct {
	s    *Store
	ctx  context.Context
	data []byte
	cut  int64 // bytes until the injected end; negative: none
}

func (b *body) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	if len(b.data) == 0 {
		return 0, io.EOF
	}
	if b.cut == 0 {
		return 0, objcache.Errorf(objcache.Unavailable, "memstore: body cut: %w", io.ErrUnexpectedEOF)
	}
	if b.cut > 0 && int64(len(p)) > b.cut {
		p = p[:b.cut]
	}
	n := copy(p, b.data)
	b.data = b.data[n:]
	if b.cut > 0 {
		b.cut -= int64(n)
	}
	b.s.mu.Lock()
	b.s.mu.read += int64(n)
	b.s.mu.Unlock()
	return n, nil
}

func (b *body) Close() error { return nil }
