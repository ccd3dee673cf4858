package group

import (
	"context"
	"slices"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/filelock"
)

// How waiting for a file lock goes: a waiter stands in a queue in memory and asks AWAIT, which holds nothing and answers when its TRY may succeed. A
// queue that a restart forgets is made anew by the next TRYs.
const (
	awaitMax = 2 * time.Second // of one AWAIT
	awayMax  = 3 * time.Second // a waiter that was not heard of for so long keeps nobody back
	// Who has waited so long is kept back by locks only, not by others in the queue: the order must not make a circle of waiting that locks alone would not.
	patience = 5 * time.Second
)

// waiter is somebody in the queue of a file.
type waiter struct {
	lock   filelock.Lock
	flock  bool
	ticket uint64
	since  time.Time
	seen   time.Time // when its last request ended
	asking int       // requests under way
	ready  chan struct{}
}

func (w *waiter) away(now time.Time) bool { return w.asking == 0 && now.Sub(w.seen) > awayMax }

// enter puts one that waits into the queue, once. Busy: a lock or somebody before it is in the way. Without a ticket only locks count.
func (f *fileLocks) enter(ino objcache.Ino, flock bool, l filelock.Lock, ticket uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	w := &waiter{lock: l, flock: flock}
	if ticket != 0 {
		if w = f.findLocked(ino, l.Owner.Session, ticket); w == nil {
			w = &waiter{lock: l, flock: flock, ticket: ticket, since: now, ready: make(chan struct{}, 1)}
			f.mu.waiting[ino] = append(f.mu.waiting[ino], w)
		}
		w.seen = now
	}
	may, err := f.mayTryLocked(ino, w, now)
	if err == nil && !may {
		return objcache.Errorf(objcache.Busy, "bytes %d to %d of inode %d", l.Start, l.End, ino)
	}
	return err
}

func (f *fileLocks) findLocked(ino objcache.Ino, session, ticket uint64) *waiter {
	for _, w := range f.mu.waiting[ino] {
		if w.lock.Owner.Session == session && w.ticket == ticket {
			return w
		}
	}
	return nil
}

// mayTryLocked reports whether nothing held is in w's way, and nobody before it in the queue who wants the same; except one who waits for w itself.
func (f *fileLocks) mayTryLocked(ino objcache.Ino, w *waiter, now time.Time) (bool, error) {
	held, err := f.held(ino, w.flock)
	if err != nil {
		return false, err
	}
	if _, busy := held.Conflict(w.lock); busy {
		return false, nil
	}
	if w.ticket == 0 || now.Sub(w.since) > patience {
		return true, nil
	}
	mine := held.Of(w.lock.Owner)
	for _, o := range f.mu.waiting[ino] {
		if o == w {
			break
		}
		if o.flock != w.flock || o.away(now) || !o.lock.Against(w.lock) {
			continue
		}
		if _, forMe := mine.Conflict(o.lock); !forMe {
			return false, nil
		}
	}
	return true, nil
}

// wake tells everybody who may try now that a file's locks have changed.
func (f *fileLocks) wake(ino objcache.Ino) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wakeLocked(ino)
}

// wakeLocked is wake. Whom it cannot ask about tries, and is told the error.
func (f *fileLocks) wakeLocked(ino objcache.Ino) {
	now := time.Now()
	f.mu.waiting[ino] = slices.DeleteFunc(f.mu.waiting[ino], func(w *waiter) bool { return w.away(now) })
	if len(f.mu.waiting[ino]) == 0 {
		delete(f.mu.waiting, ino)
	}
	for _, w := range f.mu.waiting[ino] {
		if may, err := f.mayTryLocked(ino, w, now); may || err != nil {
			select {
			case w.ready <- struct{}{}:
			default:
			}
		}
	}
}

// await returns when the waiter may try again, or after a while. One that the queue does not know may try at once, and stands in it then.
func (f *fileLocks) await(ctx context.Context, ino objcache.Ino, session, ticket uint64) error {
	f.mu.Lock()
	w := f.findLocked(ino, session, ticket)
	if w == nil {
		f.mu.Unlock()
		return nil
	}
	may, err := f.mayTryLocked(ino, w, time.Now())
	if may || err != nil {
		f.mu.Unlock()
		return err
	}
	w.asking++
	f.mu.Unlock()
	t := time.NewTimer(awaitMax)
	defer t.Stop()
	select {
	case <-w.ready:
	case <-t.C:
	case <-ctx.Done():
		err = objcache.Errorf(objcache.KindOf(ctx.Err()), "wait for a file lock: %w", ctx.Err())
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	w.asking--
	w.seen = time.Now()
	return err
}

// leave takes a waiter out of the queue.
func (f *fileLocks) leave(ino objcache.Ino, session, ticket uint64) {
	if ticket == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.waiting[ino] = slices.DeleteFunc(f.mu.waiting[ino], func(w *waiter) bool { return w.lock.Owner.Session == session && w.ticket == ticket })
	f.wakeLocked(ino)
}

// dropWaitersLocked takes all of a session out of their queues.
func (f *fileLocks) dropWaitersLocked(session uint64) {
	for ino := range f.mu.waiting {
		f.mu.waiting[ino] = slices.DeleteFunc(f.mu.waiting[ino], func(w *waiter) bool { return w.lock.Owner.Session == session })
		f.wakeLocked(ino)
	}
}
