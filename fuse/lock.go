package fuse

import (
	"context"
	"errors"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/filelock"
)

// GetLk is F_GETLK.
func (fs *FS) GetLk(cancel <-chan struct{}, in *fuse.LkIn, out *fuse.LkOut) fuse.Status {
	ctx, done := fs.begin(cancel)
	defer done()
	h, err := fs.handles.get(in.Fh)
	if err != nil {
		return status(err)
	}
	by, busy, err := fs.backend.TestLock(ctx, wantedLock(h, in))
	if err != nil {
		return status(err)
	}
	out.Lk = in.Lk
	out.Lk.Typ = syscall.F_UNLCK
	if busy {
		out.Lk = fuse.FileLock{Start: by.Start, End: by.End, Typ: syscall.F_RDLCK, Pid: by.PID}
		if by.Exclusive {
			out.Lk.Typ = syscall.F_WRLCK
		}
	}
	return fuse.OK
}

// SetLk is F_SETLK, F_OFD_SETLK, flock(2) with LOCK_NB, and every unlock.
func (fs *FS) SetLk(cancel <-chan struct{}, in *fuse.LkIn) fuse.Status {
	return fs.setLk(cancel, in, false)
}

// SetLkw is F_SETLKW, F_OFD_SETLKW and flock(2).
func (fs *FS) SetLkw(cancel <-chan struct{}, in *fuse.LkIn) fuse.Status {
	return fs.setLk(cancel, in, true)
}

func wantedLock(h *handle, in *fuse.LkIn) objcache.Lock {
	return objcache.Lock{
		Ino: h.f.ino, Flock: in.LkFlags&fuse.LK_FLOCK != 0, Owner: in.Owner, Exclusive: in.Lk.Typ == syscall.F_WRLCK,
		Start: in.Lk.Start, End: min(in.Lk.End, filelock.EOF), PID: in.Lk.Pid,
	}
}

func (fs *FS) setLk(cancel <-chan struct{}, in *fuse.LkIn, wait bool) fuse.Status {
	h, err := fs.handles.get(in.Fh)
	if err != nil {
		return status(err)
	}
	l := wantedLock(h, in)
	if in.Lk.Typ == syscall.F_UNLCK {
		return status(fs.detached(cancel, func() error { return fs.unlock(fs.ctx, h.f, keyOf(l), l.Start, l.End) }))
	}
	if h.lost.Load() {
		return fuse.EIO
	}
	a := &attempt{fs: fs, h: h, fh: in.Fh, l: l, cancel: cancel}
	return status(a.run(wait))
}

// detached runs f to its end, also when the program is interrupted: then somebody else waits for it.
func (fs *FS) detached(cancel <-chan struct{}, f func() error) error {
	done := make(chan error, 1)
	fs.background(func() { done <- f() })
	select {
	case err := <-done:
		return err
	case <-cancel:
		return syscall.EINTR
	}
}

// attempt is one program's wish for a lock.
type attempt struct {
	fs     *FS
	h      *handle
	fh     uint64
	l      objcache.Lock
	cancel <-chan struct{}
	ticket uint64
}

// run takes the lock, now or, if wait, when it is free. What waits occupies a goroutine, and a place in the queue of the file's owner.
func (a *attempt) run(wait bool) error {
	if wait {
		a.ticket, _ = a.fs.locks.begin()
		a.fs.locks.waits(1)
		defer a.fs.locks.waits(-1)
	}
	for again := true; ; {
		closes := a.fs.locks.closesUnderWay(a.l.Ino)
		err := a.once()
		switch {
		case !errors.Is(err, objcache.Busy):
			a.leave(err)
			return err
		case wait:
			err = a.await()
		case closes != nil && again:
			again = false
			err = a.until(closes)
		}
		if err != nil {
			a.leave(err)
			return err
		}
	}
}

// leave gives the place in the queue up that a failed attempt has. The owner forgets it by itself if it cannot be told.
func (a *attempt) leave(err error) {
	if a.ticket == 0 || err == nil {
		return
	}
	a.fs.background(func() {
		if err := a.fs.backend.LeaveLock(a.fs.ctx, a.l, a.ticket); err != nil {
			a.fs.log.Debug("a place in the queue for a lock was not given up", "ino", a.l.Ino, "err", err)
		}
	})
}

func (a *attempt) until(c <-chan struct{}) error {
	select {
	case <-c:
		return nil
	case <-a.cancel:
		return syscall.EINTR
	}
}

// await waits in the queue until it is worthwhile to try again.
func (a *attempt) await() error {
	ctx, stop := context.WithCancel(a.fs.ctx)
	defer stop()
	go func() {
		select {
		case <-a.cancel:
			stop()
		case <-ctx.Done():
		}
	}()
	return a.fs.backend.AwaitLock(ctx, a.l, a.ticket)
}

// once tries once. An interrupted program gets EINTR, and whatever the late answer says is undone.
func (a *attempt) once() error {
	o, done := a.fs.locks.use(keyOf(a.l))
	select {
	case o.turn <- struct{}{}:
	case <-a.cancel:
		done()
		return syscall.EINTR
	}
	answer := make(chan error)
	gone := make(chan struct{})
	a.fs.background(func() {
		defer done()
		defer func() { <-o.turn }()
		before := a.fs.locks.holds(keyOf(a.l), a.l.Start, a.l.End)
		err := a.try(o)
		select {
		case answer <- err:
		case <-gone:
			if err == nil {
				a.undo(o, before)
			}
		}
	})
	select {
	case err := <-answer:
		return err
	case <-a.cancel:
		close(gone)
		return syscall.EINTR
	}
}

// try asks the cluster, and makes the lock worth something: this mount shows the file as it was when the lock was taken, or newer.
func (a *attempt) try(o *lockOwner) error {
	fs, f := a.fs, a.h.f
	before := fs.locks.holds(keyOf(a.l), a.l.Start, a.l.End)
	_, epoch := fs.locks.begin()
	f.lockedOnce()
	if downgrades(before, a.l) { // readers come next
		if err := f.flush(fs.ctx); err != nil {
			return err
		}
	}
	attr, err := fs.backend.TryLock(fs.ctx, a.l, a.ticket)
	if err != nil {
		if errors.Is(err, objcache.Busy) && a.l.Flock && len(before) > 0 { // flock(2) gives the old lock up before it waits for the new one
			return errors.Join(fs.giveBack(fs.ctx, f, o, keyOf(a.l), a.l.Start, a.l.End), err)
		}
		return err
	}
	if !fs.locks.took(o, a.l, a.fh, a.h, epoch) {
		return errors.Join(objcache.Errorf(objcache.Fenced, "lock of inode %d", a.l.Ino), fs.backend.Unlock(fs.ctx, a.l))
	}
	if err := fs.revalidate(fs.ctx, a.h, attr); err != nil {
		a.undo(o, before)
		return err
	}
	return nil
}

func downgrades(before filelock.Table, l objcache.Lock) bool {
	for _, h := range before {
		if h.Exclusive && !l.Exclusive {
			return true
		}
	}
	return false
}

// undo makes of the range what it was before a lock was taken that nobody wants any more. A downgrade stays.
func (a *attempt) undo(o *lockOwner, before filelock.Table) {
	if downgrades(before, a.l) {
		return
	}
	t := a.fs.locks
	at := a.l.Start
	free := func(end uint64) error { return a.fs.giveBack(a.fs.ctx, a.h.f, o, keyOf(a.l), at, end) }
	var err error
	for _, b := range before {
		if b.Start > at {
			err = errors.Join(err, free(b.Start-1))
		}
		old := a.l
		old.Exclusive, old.Start, old.End = b.Exclusive, b.Start, b.End
		_, epoch := t.begin()
		if _, terr := a.fs.backend.TryLock(a.fs.ctx, old, 0); terr != nil {
			err = errors.Join(err, terr)
		} else {
			t.took(o, old, a.fh, a.h, epoch)
		}
		at = b.End + 1
	}
	if at <= a.l.End {
		err = errors.Join(err, free(a.l.End))
	}
	if err != nil {
		a.fs.log.Error("a lock that nobody waits for any more is kept until its file is closed", "ino", a.l.Ino, "err", err)
	}
}

// revalidate makes this mount serve what the file is now, pages of the kernel included, before whoever got a lock goes on.
func (fs *FS) revalidate(ctx context.Context, h *handle, a objcache.Attr) error {
	if err := h.f.adopt(ctx, a); err != nil {
		return err
	}
	c := h.f.hold()
	defer fs.store.Release(c)
	fs.nodes.mu.Lock()
	old := h.way == wayPass && h.n.file != c
	fs.nodes.mu.Unlock()
	if old { // the kernel reads a version that this lock does not speak of
		return objcache.Errorf(objcache.Stale, "inode %d has changed since it was opened for reading past this process", h.f.ino)
	}
	fs.inval.now(h.f.ino, c.Version())
	return nil
}
