package fuse

import (
	"sync"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/filelock"
)

// lockTable is what this mount's programs hold of locks, as far as the cluster has said so: without any, closing a file asks nobody. The cluster decides;
// the table only remembers, so that an interrupted attempt leaves behind what was there before.
type lockTable struct {
	mu      sync.Mutex
	owners  map[lockKey]*lockOwner
	ticket  uint64
	epoch   uint64                         // of the session: what was granted in an earlier one is gone
	closing map[objcache.Ino]chan struct{} // an unlock by close is on its way; closed when there is none any more
	closes  map[objcache.Ino]int
	waiting int
}

// lockKey is one owner of locks on one file, in one of the two spaces.
type lockKey struct {
	ino   objcache.Ino
	flock bool
	owner uint64
}

type lockOwner struct {
	turn    chan struct{} // held by the one request of this owner that changes locks; also over the network
	users   int           // of the entry
	held    filelock.Table
	through map[uint64]*handle // descriptions that locked
}

func newLockTable() *lockTable {
	return &lockTable{owners: make(map[lockKey]*lockOwner), closing: make(map[objcache.Ino]chan struct{}), closes: make(map[objcache.Ino]int)}
}

func keyOf(l objcache.Lock) lockKey { return lockKey{l.Ino, l.Flock, l.Owner} }

// use returns the entry of an owner, made if need be; done gives it back.
func (t *lockTable) use(k lockKey) (o *lockOwner, done func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o = t.owners[k]
	if o == nil {
		o = &lockOwner{turn: make(chan struct{}, 1), through: make(map[uint64]*handle)}
		t.owners[k] = o
	}
	o.users++
	return o, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		o.users--
		t.reapLocked(k, o)
	}
}

func (t *lockTable) reapLocked(k lockKey, o *lockOwner) {
	if o.users == 0 && len(o.held) == 0 && t.owners[k] == o {
		delete(t.owners, k)
	}
}

// holds returns what an owner holds of a range.
func (t *lockTable) holds(k lockKey, start, end uint64) filelock.Table {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o := t.owners[k]; o != nil {
		return o.held.Within(start, end)
	}
	return nil
}

// took notes a lock; false: the session that got it has ended.
func (t *lockTable) took(o *lockOwner, l objcache.Lock, fh uint64, h *handle, epoch uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.epoch != epoch {
		return false
	}
	o.held = o.held.Set(filelock.Lock{Exclusive: l.Exclusive, Start: l.Start, End: l.End})
	o.through[fh] = h
	return true
}

func (t *lockTable) gave(o *lockOwner, start, end uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o.held = o.held.Unset(filelock.Owner{}, start, end); len(o.held) == 0 {
		clear(o.through)
	}
}

// begin numbers a waiter and returns the session's epoch.
func (t *lockTable) begin() (ticket, epoch uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ticket++
	return t.ticket, t.epoch
}

// lockedThrough returns the owners that have locks through a description.
func (t *lockTable) lockedThrough(ino objcache.Ino, fh uint64) []lockKey {
	t.mu.Lock()
	defer t.mu.Unlock()
	var ks []lockKey
	for k, o := range t.owners {
		if _, ok := o.through[fh]; ok && k.ino == ino {
			ks = append(ks, k)
		}
	}
	return ks
}

// lost forgets every lock: their session has ended. The descriptions they were taken through are of no use any more.
func (t *lockTable) lost() (descriptions int, files []objcache.Ino) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.epoch++
	for k, o := range t.owners {
		for _, h := range o.through {
			h.lost.Store(true)
			descriptions++
		}
		files = append(files, k.ino)
		o.held = nil
		clear(o.through)
		t.reapLocked(k, o)
	}
	return descriptions, files
}

// beginClose notes that a close is taking locks of a file away; done that it has.
func (t *lockTable) beginClose(ino objcache.Ino) (done func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closes[ino]++; t.closes[ino] == 1 {
		t.closing[ino] = make(chan struct{})
	}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.closes[ino]--; t.closes[ino] == 0 {
			close(t.closing[ino])
			delete(t.closing, ino)
			delete(t.closes, ino)
		}
	}
}

// closesUnderWay is closed when the closes that are taking locks of a file away have done so; nil: there are none.
func (t *lockTable) closesUnderWay(ino objcache.Ino) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closing[ino]
}

func (t *lockTable) waits(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting += n
}

// counts returns how many locks programs of this mount hold, and how many wait for one.
func (t *lockTable) counts() (held, waiting int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, o := range t.owners {
		held += len(o.held)
	}
	return held, t.waiting
}
