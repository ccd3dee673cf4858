package replica

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"testing"
)

// counter is a state machine without state.
type counter struct{ applied uint64 }

func (c *counter) Apply(index, _ uint64, _ []byte) any { c.applied = index; return nil }
func (c *counter) Applied() uint64                     { return c.applied }
func (c *counter) Flush() error                        { return nil }

// BenchmarkPropose appends 256 bytes on the real disk.
func BenchmarkPropose(b *testing.B) {
	for name, workers := range map[string]int{"1": 1, "64": 64} {
		b.Run(name, func(b *testing.B) {
			r, err := Open(Config{ID: "a", Dir: b.TempDir(), Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}, &counter{})
			if err != nil {
				b.Fatal(err)
			}
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			if err := r.WaitLeader(ctx); err != nil {
				b.Fatal(err)
			}
			data := make([]byte, 256)
			b.ResetTimer()
			var wg sync.WaitGroup
			for w := range workers {
				wg.Go(func() {
					for i := w; i < b.N; i += workers {
						if _, err := r.Propose(ctx, data); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			if err := r.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkRead is the price of a linearizable read point.
func BenchmarkRead(b *testing.B) {
	r, err := Open(Config{ID: "a", Dir: b.TempDir(), Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}, &counter{})
	if err != nil {
		b.Fatal(err)
	}
	if err := r.WaitLeader(context.Background()); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := r.Read(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
	if err := r.Close(); err != nil {
		b.Fatal(err)
	}
}
