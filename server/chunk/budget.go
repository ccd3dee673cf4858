package chunk

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/objcache/objcache"
)

// Budget is the disk that all stores of a server share, in bytes. Clean files are evicted in the background between two watermarks; dirty bytes stop at
// the reserve, which is left for the log, the metadata and whatever frees space. Who wants more waits while dirty bytes still come back.
type Budget struct {
	capacity  int64
	high, low int64         // used bytes at which eviction begins and ends
	limit     int64         // capacity without the reserve
	patience  time.Duration // how long a full budget is waited for without any dirty byte coming back

	wake chan struct{} // wakes one store's evictor; capacity 1
	mu   struct {
		sync.Mutex
		dirty, clean int64
		clock        list.List // of *cleanRef: every clean file of every store
		hand         *list.Element
		freed        chan struct{} // closed and replaced when bytes come back
		full         time.Time     // since when dirty data alone is at the limit and nothing came back; zero: it is not
	}
}

// cleanRef is a clean file on the clock.
type cleanRef struct {
	store *Store
	file  *file
}

// NewBudget makes a budget of capacity bytes: eviction from 90 % down to 80 %, a reserve of 5 %. A writer who finds it full of dirty data waits until
// nothing has come back for as long as patience.
func NewBudget(capacity int64, patience time.Duration) *Budget {
	b := &Budget{capacity: capacity, high: capacity / 10 * 9, low: capacity / 10 * 8, limit: capacity / 20 * 19, patience: patience, wake: make(chan struct{}, 1)}
	b.mu.freed = make(chan struct{})
	return b
}

// Pressed reports whether dirty data takes more than half of the room, so that it should become clean soon.
func (b *Budget) Pressed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.dirty > b.limit/2
}

// Used returns the dirty bytes, segments included at their full size, and the clean ones.
func (b *Budget) Used() (dirty, clean int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.dirty, b.mu.clean
}

// Capacity is the size of the budget in bytes.
func (b *Budget) Capacity() int64 { return b.capacity }

// takeDirty takes n bytes for dirty data. While there is no room it waits, for the eviction of clean bytes or for dirty ones to become clean: NoSpace at
// the deadline of ctx or when its patience ends, Interrupted when ctx is cancelled.
func (b *Budget) takeDirty(ctx context.Context, n int64) error {
	for {
		b.mu.Lock()
		dirty, used, freed := b.mu.dirty, b.mu.dirty+b.mu.clean, b.mu.freed
		room := used+n <= b.limit
		if room {
			b.mu.dirty += n
		}
		patience := b.patience
		if dirty+n > b.limit {
			patience = b.patienceLocked()
		}
		b.mu.Unlock()
		if used+n > b.high {
			b.wakeEvictor() // idle segments may go, too
		}
		switch {
		case room:
			return nil
		case n > b.limit || dirty+n > b.limit && patience <= 0:
			return objcache.Errorf(objcache.NoSpace, "%d dirty bytes of %d", dirty, b.capacity)
		}
		if err := b.await(ctx, freed, dirty+n > b.limit, patience); err != nil {
			return objcache.Errorf(objcache.KindOf(err), "%d bytes: %w", n, err)
		}
	}
}

// patienceLocked is how much longer a budget full of dirty data is waited for.
func (b *Budget) patienceLocked() time.Duration {
	if b.mu.full.IsZero() {
		b.mu.full = time.Now()
	}
	return b.patience - time.Since(b.mu.full)
}

// await waits until something is freed; of a budget full of dirty data also until its patience ends.
func (b *Budget) await(ctx context.Context, freed <-chan struct{}, full bool, patience time.Duration) error {
	var ends <-chan time.Time
	if full {
		t := time.NewTimer(patience)
		defer t.Stop()
		ends = t.C
	}
	select {
	case <-freed:
	case <-ends:
	case <-ctx.Done():
		if kind := objcache.KindOf(ctx.Err()); kind == objcache.Interrupted {
			return objcache.Errorf(kind, "waiting for room: %w", ctx.Err())
		}
		return objcache.Errorf(objcache.NoSpace, "no room in time: %w", ctx.Err())
	}
	return nil
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
	if dirty > 0 {
		b.mu.full = time.Time{}
	}
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
