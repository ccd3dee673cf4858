package fuse

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/objcache/objcache"
)

func TestRangeLock_DisjointRangesDoNotWaitAndNobodyOvertakesAFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l rangeLock
		ctx := t.Context()
		a, err := l.lock(ctx, objcache.Range{Off: 0, Len: 10})
		if err != nil {
			t.Fatal(err)
		}
		b, err := l.lock(ctx, objcache.Range{Off: 10, Len: 10})
		if err != nil {
			t.Fatal(err)
		}
		var order []string
		take := func(name string, r objcache.Range) {
			go func() {
				unlock, err := l.lock(ctx, r)
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, name)
				unlock()
			}()
			synctest.Wait()
		}
		take("flush", wholeFile)
		take("later write", objcache.Range{Off: 100, Len: 1})
		if len(order) != 0 {
			t.Fatalf("%v did not wait", order)
		}
		a()
		b()
		synctest.Wait()
		if len(order) != 2 || order[0] != "flush" {
			t.Errorf("order %v", order)
		}
	})
}

func TestRangeLock_AWaiterThatGivesUpHoldsNobodyBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l rangeLock
		held, err := l.lock(t.Context(), objcache.Range{Len: 1})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() {
			_, err := l.lock(ctx, wholeFile)
			failed <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-failed; objcache.KindOf(err) != objcache.Interrupted {
			t.Errorf("err %v", err)
		}
		other, err := l.lock(t.Context(), objcache.Range{Off: 5, Len: 1})
		if err != nil {
			t.Fatal(err)
		}
		other()
		held()
		if len(l.queue) != 0 {
			t.Errorf("%d are left in the queue", len(l.queue))
		}
	})
}
