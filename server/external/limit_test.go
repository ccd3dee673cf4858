package external_test

import (
	"context"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/external"
	"github.com/objcache/objcache/server/external/memstore"
)

func TestLimit_NoMoreThanNRequestsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := memstore.New(memstore.Config{})
		fake.Inject(memstore.Fault{Delay: time.Second})
		s := external.Limit(fake, 3)
		start := time.Now()
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if err := put(t.Context(), s, "k", "x"); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if took := time.Since(start); took != 4*time.Second {
			t.Errorf("10 requests of 1 s, 3 at once: %v", took)
		}
	})
}

func TestLimit_ABodyKeepsItsPlaceUntilClosed(t *testing.T) {
	fake := memstore.New(memstore.Config{})
	fake.Set("k", []byte("hello"), nil)
	s := external.Limit(fake, 1)
	r, _, err := s.Get(t.Context(), "k", 0, -1, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(r); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Head(ctx, "k"); objcache.KindOf(err) != objcache.Interrupted {
		t.Errorf("beside an open body: %v", err)
	}
	for range 2 {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.Head(t.Context(), "k"); err != nil {
		t.Errorf("after close: %v", err)
	}
	if _, _, err := s.Get(t.Context(), "gone", 0, -1, ""); objcache.KindOf(err) != objcache.NotExist {
		t.Errorf("get: %v", err)
	}
	if _, err := s.Head(t.Context(), "k"); err != nil {
		t.Errorf("after a failed get: %v", err)
	}
}

func TestLimit_WaitEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := memstore.New(memstore.Config{})
		fake.Inject(memstore.Fault{Op: external.OpPut, Delay: time.Hour})
		s := external.Limit(fake, 1)
		done := make(chan error)
		go func() { done <- put(t.Context(), s, "k", "x") }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		if _, err := s.Head(ctx, "k"); objcache.KindOf(err) != objcache.Unavailable || time.Since(start) != time.Minute {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
