package txn

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/objcache/objcache"
)

// Age orders transactions over all groups for wait-die: the smaller is the older.
type Age struct {
	Start  int64 // when the request was first made, ns
	Client objcache.ClientID
	Seq    objcache.SeqNum
}

// Compare is negative when a is older than b.
func (a Age) Compare(b Age) int {
	return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Client, b.Client), cmp.Compare(a.Seq, b.Seq))
}

// Locks is the one lock table of a group. A transaction takes all its locks of a group at once or none, so that whoever waits holds nothing
// here; one that holds locks in other groups waits only for younger holders' ends (wait-die), so no circle can form. Safe for
// concurrent use.
type Locks struct {
	mu struct {
		sync.Mutex
		held map[string]*hold
	}
}

type hold struct {
	age      Age
	prepared bool
	free     chan struct{} // closed when released
}

// NewLocks returns an empty table.
func NewLocks() *Locks {
	l := &Locks{}
	l.mu.held = map[string]*hold{}
	return l
}

// Held are locks that somebody holds.
type Held struct {
	l    *Locks
	h    *hold
	keys []string
	once sync.Once
}

// Acquire takes all keys. elsewhere says that the transaction holds locks in other groups: then it is refused with Conflict when it would
// wait for an older one. It waits at most until ctx ends.
func (l *Locks) Acquire(ctx context.Context, keys []string, age Age, elsewhere bool) (*Held, error) {
	for {
		got, blocker := l.try(keys, age)
		if got != nil {
			return got, nil
		}
		if elsewhere && blocker.age.Compare(age) < 0 {
			return nil, objcache.Errorf(objcache.Conflict, "an older transaction holds a lock")
		}
		select {
		case <-blocker.free:
		case <-ctx.Done():
			return nil, objcache.Errorf(objcache.KindOf(ctx.Err()), "wait for a lock: %w", ctx.Err())
		}
	}
}

func (l *Locks) try(keys []string, age Age) (*Held, *hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range keys {
		if h := l.mu.held[k]; h != nil {
			return nil, h
		}
	}
	h := &hold{age: age, free: make(chan struct{})}
	for _, k := range keys {
		l.mu.held[k] = h
	}
	return &Held{l: l, h: h, keys: slices.Clone(keys)}, nil
}

// Restore takes locks that a log says are held.
func (l *Locks) Restore(keys []string, age Age) *Held {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := &hold{age: age, free: make(chan struct{}), prepared: true}
	for _, k := range keys {
		l.mu.held[k] = h
	}
	return &Held{l: l, h: h, keys: slices.Clone(keys)}
}

// Prepared marks the locks as held by a prepared transaction: readers wait for its decision.
func (h *Held) Prepared() {
	h.l.mu.Lock()
	h.h.prepared = true
	h.l.mu.Unlock()
}

// Release gives the locks up; more than once is harmless.
func (h *Held) Release() {
	h.once.Do(func() {
		h.l.mu.Lock()
		for _, k := range h.keys {
			if h.l.mu.held[k] == h.h {
				delete(h.l.mu.held, k)
			}
		}
		h.l.mu.Unlock()
		close(h.h.free)
	})
}

// WaitDecided waits until no prepared transaction holds the key: a reader must not show the state before a commit that may already be known elsewhere.
func (l *Locks) WaitDecided(ctx context.Context, key string) error {
	for {
		l.mu.Lock()
		h := l.mu.held[key]
		wait := h != nil && h.prepared
		l.mu.Unlock()
		if !wait {
			return nil
		}
		select {
		case <-h.free:
		case <-ctx.Done():
			return objcache.Errorf(objcache.KindOf(ctx.Err()), "wait for a transaction's decision: %w", ctx.Err())
		}
	}
}
