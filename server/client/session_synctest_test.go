package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
)

func TestSession_WithoutRenewalOperationsWaitBeforeItsLeaseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Client{}
		c.life.init()
		first := &session{id: 1, number: 1}
		c.life.renewed(first, time.Now(), 30*time.Second)
		time.Sleep(19 * time.Second)
		if s, err := c.life.current(t.Context()); s != first || err != nil {
			t.Fatal(s, err)
		}
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := c.life.current(ctx); !errors.Is(err, objcache.IO) {
			t.Errorf("after its timeout: %v", err)
		}
		got := make(chan *session)
		go func() {
			s, err := c.life.current(t.Context())
			if err != nil {
				t.Error(err)
			}
			got <- s
		}()
		synctest.Wait()
		c.life.renewed(first, time.Now(), 30*time.Second)
		if s := <-got; s != first {
			t.Error("another session")
		}
	})
}

func TestSession_FencedRequestsRunAgainUnderTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Client{}
		c.life.init()
		c.life.renewed(&session{id: 1, number: 1}, time.Now(), 30*time.Second)
		var ran []uint64
		done := make(chan error)
		go func() {
			_, err := c.inSession(t.Context(), func(s *session) (*rpc.Reply, error) {
				if ran = append(ran, s.number); s.number == 1 {
					return nil, objcache.Errorf(objcache.Fenced, "session 1")
				}
				return nil, nil
			})
			done <- err
		}()
		synctest.Wait()
		if len(c.life.fenced) != 1 {
			t.Error("nobody is told that the session has ended")
		}
		c.life.renewed(&session{id: 2, number: 2}, time.Now(), 30*time.Second)
		if err := <-done; err != nil || len(ran) != 2 {
			t.Errorf("%v %v", ran, err)
		}
	})
}

func TestSequence_NoMoreThanSomeAreInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s sequence
		s.init()
		for range inFlight {
			if _, _, err := s.begin(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := s.begin(ctx); err == nil {
			t.Error("one more")
		}
		s.end(7)
		if seq, below, err := s.begin(t.Context()); seq != inFlight+1 || below != 1 || err != nil {
			t.Errorf("%d, acknowledged below %d, %v", seq, below, err)
		}
	})
}
