package chunk

import (
	"container/list"
	"context"
	"sync"

	"github.com/objcache/objcache"
)

// Budget is the disk that all stores of a server share, in bytes. Clean files are evicted in the background between two watermarks; dirty bytes stop at
// the reserve, which is left for the log, the metadata and whatever frees space.
type Budget struct {
	capacity  int64
	high, low int64 // used bytes at which eviction begins and ends
	limit     int64 // capacity without the reserve

	wake chan struct{} // wakes one store's evictor; capacity 1
	mu   struct {
		sync.Mutex
		dirty, clean int64
		clock        list.List // of *cleanRef: every clean file of every store
		hand         *list.Element
		freed        chan struct{} // closed and replaced when bytes come back
	}
}

// cleanRef is a clean file on the clock.
type cleanRef struct {
	store *Store
	file  *file
}

// NewBudget makes a budget of capacity bytes: eviction from 90 % down to 80 %, a reserve of 5 %.
func NewBudget(capacity int64) *Budget {
	b := &Budget{capacity: capacity, high: capacity / 10 * 9, low: capacity / 10 * 8, limit: capacity / 20 * 19, wake: make(chan struct{}, 1)}
	b.mu.freed = make(chan struct{})
	return b
}

// Used returns the dirty bytes, segments included at their full size, and the clean ones.
func (b *Budget) Used() (dirty, clean int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.dirty, b.mu.clean
}

// Capacity is the size of the budget in bytes.
func (b *Budget) Capacity() int64 { return b.capacity }

// takeDirty takes n bytes for dirty data. NoSpace when dirty data alone would pass the limit; while clean bytes are in the way it waits
// for their eviction: NoSpace at the deadline of ctx, Interrupted when it is cancelled.
func (b *Budget) takeDirty(ctx context.Context, n int64) error {
	for {
		b.mu.Lock()
		dirty, used, freed := b.mu.dirty, b.mu.dirty+b.mu.clean, b.mu.freed
		if dirty+n > b.limit {
			b.mu.Unlock()
			b.wakeEvictor() // idle segments may go
			return objcache.Errorf(objcache.NoSpace, "%d dirty bytes of %d", dirty, b.capacity)
		}
		room := used+n <= b.limit
		if room {
			b.mu.dirty += n
		}
		b.mu.Unlock()
		if used+n > b.high {
			b.wakeEvictor()
		}
		if room {
			return nil
		}
		select {
		case <-freed:
		case <-ctx.Done():
			if kind := objcache.KindOf(ctx.Err()); kind == objcache.Interrupted {
				return objcache.Errorf(kind, "waiting for the eviction of %d bytes: %w", n, ctx.Err())
			}
			return objcache.Errorf(objcache.NoSpace, "no eviction of %d bytes in time: %w", n, ctx.Err())
		}
	}
}

// forceDirty takes n bytes that are on disk already.
func (b *Budget) forceDirty(n int64) {
	b.mu.Lock()
	b.mu.dirty += n
	b.mu.Unlock()
}

func (b *Budget) giveDirty(n int64) { b.give(n, 0) }
func (b *Budget) giveClean(n int64) { b.give(0, n) }

func (b *Budget) give(dirty, clean int64) {
	if dirty == 0 && clean == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.dirty -= dirty
	b.mu.clean -= clean
	close(b.mu.freed)
	b.mu.freed = make(chan struct{})
}

// takeClean takes n bytes for clean data, unless there is no room: then it is not cached.
func (b *Budget) takeClean(n int64) bool {
	b.mu.Lock()
	used := b.mu.dirty + b.mu.clean + n
	ok := used <= b.limit
	if ok {
		b.mu.clean += n
	}
	b.mu.Unlock()
	if used > b.high {
		b.wakeEvictor()
	}
	return ok
}

// forceClean takes n bytes of a file found at the start.
func (b *Budget) forceClean(n int64) {
	b.mu.Lock()
	b.mu.clean += n
	over := b.mu.dirty+b.mu.clean > b.high
	b.mu.Unlock()
	if over {
		b.wakeEvictor()
	}
}

// toClean moves dirty bytes that became clean ones.
func (b *Budget) toClean(dirty, clean int64) {
	b.mu.Lock()
	b.mu.clean += clean
	b.mu.Unlock()
	b.giveDirty(dirty)
}

// tight reports whether eviction is due.
func (b *Budget) tight() bool {
	dirty, clean := b.Used()
	return dirty+clean > b.high
}

// nudge looks whether eviction is due.
func (b *Budget) nudge() {
	if b.tight() {
		b.wakeEvictor()
	}
}

func (b *Budget) wakeEvictor() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}
