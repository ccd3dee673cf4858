package txn

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/objcache/objcache"
)

func mustAcquire(t *testing.T, l *Locks, age Age, elsewhere bool, keys ...string) *Held {
	t.Helper()
	h, err := l.Acquire(t.Context(), keys, age, elsewhere)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestLocks_TheYoungerDiesAndTheOlderWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLocks()
		h := mustAcquire(t, l, Age{Start: 5}, true, "a")
		if _, err := l.Acquire(t.Context(), []string{"a"}, Age{Start: 6}, true); !errors.Is(err, objcache.Conflict) {
			t.Errorf("a younger transaction that holds locks elsewhere got %v", err)
		}
		got := make(chan *Held)
		go func() { got <- mustAcquire(t, l, Age{Start: 4}, true, "a") }()
		synctest.Wait()
		select {
		case <-got:
			t.Fatal("two transactions hold one lock")
		default:
		}
		h.Release()
		(<-got).Release()
	})
}

func TestLocks_WhoHoldsNothingElsewhereWaitsForTheOlder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLocks()
		h := mustAcquire(t, l, Age{Start: 5}, true, "a")
		time.AfterFunc(time.Second, h.Release)
		mustAcquire(t, l, Age{Start: 6}, false, "a").Release()
	})
}

func TestLocks_AllOrNone(t *testing.T) {
	l := NewLocks()
	h := mustAcquire(t, l, Age{Start: 1}, true, "b")
	if _, err := l.Acquire(t.Context(), []string{"a", "b"}, Age{Start: 2}, true); !errors.Is(err, objcache.Conflict) {
		t.Fatalf("got %v", err)
	}
	mustAcquire(t, l, Age{Start: 3}, true, "a").Release() // the refused one left nothing behind
	h.Release()
	h.Release()
	mustAcquire(t, l, Age{Start: 4}, true, "a", "b").Release()
}

func TestLocks_AReaderWaitsForAPreparedKeyOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLocks()
		h := mustAcquire(t, l, Age{Start: 1}, true, "a")
		if err := l.WaitDecided(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		h.Prepared()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.WaitDecided(ctx, "a"); !errors.Is(err, objcache.Unavailable) {
			t.Errorf("read of a prepared key: %v", err)
		}
		time.AfterFunc(time.Second, h.Release)
		if err := l.WaitDecided(t.Context(), "a"); err != nil {
			t.Error(err)
		}
	})
}

func TestLocks_ARestoredLockIsHeldAndPrepared(t *testing.T) {
	l := NewLocks()
	h := l.Restore([]string{"a"}, Age{Start: 1})
	if _, err := l.Acquire(t.Context(), []string{"a"}, Age{Start: 2}, true); !errors.Is(err, objcache.Conflict) {
		t.Errorf("got %v", err)
	}
	h.Release()
	mustAcquire(t, l, Age{Start: 2}, true, "a").Release()
}

// TestLocks_RandomTransactionsOverManyTablesAllEnd would end in a deadlock of the bubble if a circle could form.
func TestLocks_RandomTransactionsOverManyTablesAllEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tables := []*Locks{NewLocks(), NewLocks(), NewLocks()}
		var holders [3][4]sync.Mutex // only to see that nobody shares
		var wg sync.WaitGroup
		for i := range 24 {
			rng := rand.New(rand.NewPCG(7, uint64(i)))
			wg.Go(func() {
				for range 20 {
					runTransaction(t, rng, tables, &holders, Age{Start: time.Now().UnixNano(), Client: objcache.ClientID(i + 1)})
				}
			})
		}
		wg.Wait()
	})
}

func runTransaction(t *testing.T, rng *rand.Rand, tables []*Locks, holders *[3][4]sync.Mutex, age Age) {
	order := rng.Perm(len(tables))
	keys := make([][]int, len(tables))
	for i := range keys {
		keys[i] = rng.Perm(4)[:1+rng.IntN(3)]
		slices.Sort(keys[i])
	}
	for !tryTransaction(t, order, keys, tables, holders, age) {
		time.Sleep(time.Duration(1+rng.IntN(20)) * time.Millisecond)
	}
}

// tryTransaction takes its first table as a coordinator does and the others at the same time, as participants.
func tryTransaction(t *testing.T, order []int, keys [][]int, tables []*Locks, holders *[3][4]sync.Mutex, age Age) bool {
	names := func(i int) (out []string) {
		for _, k := range keys[i] {
			out = append(out, string(rune('a'+k)))
		}
		return out
	}
	first := mustAcquire(t, tables[order[0]], age, false, names(order[0])...)
	defer first.Release()
	held := make([]*Held, len(tables))
	var wg sync.WaitGroup
	for _, i := range order[1:] {
		wg.Go(func() {
			if h, err := tables[i].Acquire(t.Context(), names(i), age, true); err == nil {
				held[i] = h
			}
		})
	}
	wg.Wait()
	defer func() {
		for _, h := range held {
			if h != nil {
				h.Release()
			}
		}
	}()
	if slices.ContainsFunc(order[1:], func(i int) bool { return held[i] == nil }) {
		return false
	}
	for i, ks := range keys {
		for _, k := range ks {
			if !holders[i][k].TryLock() {
				t.Errorf("key %d of table %d has two holders", k, i)
				return true
			}
			defer holders[i][k].Unlock()
		}
	}
	time.Sleep(time.Millisecond)
	return true
}
