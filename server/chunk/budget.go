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
	capacity int64
	patience time.Duration // how long a full budget is waited for without any dirty byte coming back

	wake chan struct{} // wakes one store's evictor; capacity 1
	mu   struct {
		sync.Mutex
		high, low    int64 // used bytes at which eviction begins and ends
		limit        int64 // for dirty bytes: what is left of the room is the reserve
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
	b := &Budget{capacity: capacity, patience: patience, wake: make(chan struct{}, 1)}
	b.mu.freed = make(chan struct{})
	b.setRoomLocked(capacity)
	return b
}

func (b *Budget) setRoomLocked(room int64) {
	b.mu.high, b.mu.low, b.mu.limit = room/10*9, room/10*8, room/20*19
}

// Disk says how many bytes the disk has free. When others fill it, the budget is what is used and what is free instead of the whole capacity.
func (b *Budget) Disk(free int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.mu.limit
	b.setRoomLocked(min(b.capacity, b.mu.dirty+b.mu.clean+max(free, 0)))
	if b.mu.limit > old+b.capacity/20 {
		b.mu.full = time.Time{} // more than what always comes and goes on a disk
	}
	if b.mu.limit > old {
		close(b.mu.freed)
		b.mu.freed = make(chan struct{})
	}
	if b.mu.dirty+b.mu.clean > b.mu.high {
		b.wakeEvictor()
	}
}

// Pressed reports whether dirty data takes more than half of the room, so that it should become clean soon.
func (b *Budget) Pressed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.dirty > b.mu.limit/2
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
		room, full, never := used+n <= b.mu.limit, dirty+n > b.mu.limit, n > b.mu.limit
		if room {
			b.mu.dirty += n
		}
		patience := b.patience
		if full {
			patience = b.patienceLocked()
		}
		tight := used+n > b.mu.high
		b.mu.Unlock()
		if tight {
			b.wakeEvictor() // idle segments may go, too
		}
		switch {
		case room:
			return nil
		case never || full && patience <= 0:
			return objcache.Errorf(objcache.NoSpace, "%d dirty bytes of %d", dirty, b.capacity)
		}
		if err := b.await(ctx, freed, patience); err != nil {
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

// await waits until something is freed, or NoSpace. A patience of zero has no end.
func (b *Budget) await(ctx context.Context, freed <-chan struct{}, patience time.Duration) error {
	var ends <-chan time.Time
	if patience > 0 {
		t := time.NewTimer(patience)
		defer t.Stop()
		ends = t.C
	}
	select {
	case <-freed:
		return nil
	case <-ends:
		return objcache.Errorf(objcache.NoSpace, "no room for %s", b.patience)
	case <-ctx.Done():
		if kind := objcache.KindOf(ctx.Err()); kind == objcache.Interrupted {
			return objcache.Errorf(kind, "waiting for room: %w", ctx.Err())
		}
		return objcache.Errorf(objcache.NoSpace, "no room in time: %w", ctx.Err())
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
	ok := used <= b.mu.limit
	if ok {
		b.mu.clean += n
	}
	tight := used > b.mu.high
	b.mu.Unlock()
	if tight {
		b.wakeEvictor()
	}
	return ok
}

// forceClean takes n bytes of a file found at the start.
func (b *Budget) forceClean(n int64) {
	b.mu.Lock()
	b.mu.clean += n
	over := b.mu.dirty+b.mu.clean > b.mu.high
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
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.dirty+b.mu.clean > b.mu.high
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
