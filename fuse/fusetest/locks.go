package fusetest

import (
	"context"
	"slices"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/filelock"
)

// fileLocks are the locks of all mounts, under the cluster's lock.
type fileLocks struct {
	held  map[lockSpace]filelock.Table
	queue []place
	freed chan struct{} // closed when something is given back
}

type lockSpace struct {
	ino   objcache.Ino
	flock bool
}

type place struct {
	session, ticket uint64
	space           lockSpace
	lock            filelock.Lock
}

func newFileLocks() fileLocks {
	return fileLocks{held: make(map[lockSpace]filelock.Table), freed: make(chan struct{})}
}

func (f *fileLocks) any(ino objcache.Ino) bool {
	return len(f.held[lockSpace{ino, false}])+len(f.held[lockSpace{ino, true}]) > 0
}

func (f *fileLocks) wake() {
	close(f.freed)
	f.freed = make(chan struct{})
}

func (b *Backend) wanted(l objcache.Lock) (lockSpace, filelock.Lock) {
	return lockSpace{l.Ino, l.Flock}, filelock.Lock{
		Owner: filelock.Owner{Session: b.id, ID: l.Owner}, Exclusive: l.Exclusive, Start: l.Start, End: l.End, PID: l.PID,
	}
}

// free reports whether neither a lock nor somebody before p is in the way.
func (f *fileLocks) free(p place) bool {
	if _, busy := f.held[p.space].Conflict(p.lock); busy {
		return false
	}
	for _, q := range f.queue {
		if q.session == p.session && q.ticket == p.ticket || p.ticket == 0 {
			return true
		}
		if q.space == p.space && q.lock.Against(p.lock) {
			return false
		}
	}
	return true
}

func (f *fileLocks) leave(session, ticket uint64) {
	f.queue = slices.DeleteFunc(f.queue, func(q place) bool { return q.session == session && q.ticket == ticket })
	f.wake()
}

// TryLock takes a lock.
func (b *Backend) TryLock(ctx context.Context, l objcache.Lock, ticket uint64) (objcache.Attr, error) {
	if err := b.enter(ctx, "TryLock", l.Ino); err != nil {
		return objcache.Attr{}, err
	}
	defer b.c.mu.Unlock()
	i, err := b.c.get(l.Ino)
	if err != nil {
		return objcache.Attr{}, err
	}
	f := &b.c.locks
	space, lock := b.wanted(l)
	p := place{b.id, ticket, space, lock}
	if ticket != 0 && !slices.ContainsFunc(f.queue, func(q place) bool { return q.session == b.id && q.ticket == ticket }) {
		f.queue = append(f.queue, p)
	}
	if !f.free(p) {
		return objcache.Attr{}, objcache.Errorf(objcache.Busy, "inode %d", l.Ino)
	}
	f.held[space] = f.held[space].Set(lock)
	f.leave(b.id, ticket)
	return i.attr, nil
}

// AwaitLock waits until something is given back.
func (b *Backend) AwaitLock(ctx context.Context, l objcache.Lock, ticket uint64) error {
	if err := b.enter(ctx, "AwaitLock", l.Ino); err != nil {
		return err
	}
	space, lock := b.wanted(l)
	free, freed := b.c.locks.free(place{b.id, ticket, space, lock}), b.c.locks.freed
	b.c.mu.Unlock()
	if free {
		return nil
	}
	select {
	case <-freed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// LeaveLock gives a place in the queue up.
func (b *Backend) LeaveLock(ctx context.Context, l objcache.Lock, ticket uint64) error {
	if err := b.enter(ctx, "LeaveLock", l.Ino); err != nil {
		return err
	}
	defer b.c.mu.Unlock()
	b.c.locks.leave(b.id, ticket)
	return nil
}

// Unlock gives a range back.
func (b *Backend) Unlock(ctx context.Context, l objcache.Lock) error {
	if err := b.enter(ctx, "Unlock", l.Ino); err != nil {
		return err
	}
	defer b.c.mu.Unlock()
	space, lock := b.wanted(l)
	f := &b.c.locks
	if f.held[space] = f.held[space].Unset(lock.Owner, lock.Start, lock.End); len(f.held[space]) == 0 {
		delete(f.held, space)
	}
	f.wake()
	return nil
}

// TestLock returns a lock that is in the way.
func (b *Backend) TestLock(ctx context.Context, l objcache.Lock) (objcache.Lock, bool, error) {
	if err := b.enter(ctx, "TestLock", l.Ino); err != nil {
		return objcache.Lock{}, false, err
	}
	defer b.c.mu.Unlock()
	space, lock := b.wanted(l)
	by, busy := b.c.locks.held[space].Conflict(lock)
	held := objcache.Lock{Ino: l.Ino, Flock: l.Flock, Owner: by.Owner.ID, Exclusive: by.Exclusive, Start: by.Start, End: by.End}
	if by.Owner.Session == b.id {
		held.PID = by.PID
	}
	return held, busy, nil
}

// Locks counts the locks of all mounts.
func (c *Cluster) Locks() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, t := range c.locks.held {
		n += len(t)
	}
	return n
}

func (b *Backend) dropLocksLocked() {
	f := &b.c.locks
	for space, t := range f.held {
		if f.held[space] = t.Without(b.id); len(f.held[space]) == 0 {
			delete(f.held, space)
		}
	}
	f.queue = slices.DeleteFunc(f.queue, func(q place) bool { return q.session == b.id })
	f.wake()
}

// Session numbers this mount's sessions.
func (b *Backend) Session() uint64 {
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	return b.session
}

// OnSessionLost has f called by Lose.
func (b *Backend) OnSessionLost(f func()) {
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	b.lost = f
}

// Lose ends this mount's session while the mount lives, and begins another, in which it has the same files open.
func (b *Backend) Lose() {
	b.c.mu.Lock()
	b.dropLocksLocked()
	clear(b.staged)
	lost := b.lost
	b.c.mu.Unlock()
	if lost != nil {
		lost()
	}
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	b.c.sessions++
	b.id = b.c.sessions
	b.session++
}
