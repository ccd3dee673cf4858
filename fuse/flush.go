package fuse

import (
	"context"
	"errors"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/failpoint"
)

// Flush is called once for every close(2) of a descriptor, its duplicates included: what was written is committed, or the close fails. POSIX takes the
// locks of the process away, whichever descriptor they were taken through.
func (fs *FS) Flush(cancel <-chan struct{}, in *fuse.FlushIn) fuse.Status {
	h, err := fs.handles.get(in.Fh)
	if err != nil {
		return status(err)
	}
	st := fs.commit(cancel, h, true)
	fs.closedBy(cancel, h, in.LockOwner)
	return st
}

// Fsync is fsync(2) and fdatasync(2).
func (fs *FS) Fsync(cancel <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	h, err := fs.handles.get(in.Fh)
	if err != nil {
		return status(err)
	}
	return fs.commit(cancel, h, false)
}

func (fs *FS) commit(cancel <-chan struct{}, h *handle, closing bool) fuse.Status {
	ctx, done := fs.begin(cancel)
	defer done()
	if err := h.f.flush(ctx); err != nil {
		return status(err)
	}
	if closing && !h.writable() {
		return fuse.OK
	}
	return status(fs.backend.Sync(ctx, h.f.ino, closing))
}

// flush commits what is pending. A failure leaves everything pending: the next close or fsync of any descriptor tries again and says so again.
func (f *content) flush(ctx context.Context) error {
	if !f.pending().Due() {
		return nil
	}
	unlock, err := f.ranges.lock(ctx, wholeFile)
	if err != nil {
		return err
	}
	defer unlock()
	return f.flushLocked(ctx)
}

// flushLocked is flush for a caller that holds the whole range: no byte changes meanwhile and no stage is on its way.
func (f *content) flushLocked(ctx context.Context) error {
	c := f.hold()
	defer f.fs.store.Release(c)
	p := c.Pending()
	if !p.Due() {
		return nil
	}
	failpoint.Hit(failpoint.MountFlushBefore)
	a, err := f.commitLocked(ctx, c, p)
	if err != nil {
		f.fs.count.flushErrors.Add(1)
		return err
	}
	failpoint.Hit(failpoint.MountFlushAfter)
	f.fs.count.flushes.Add(1)
	f.mu.Lock()
	f.mu.stream = stream{}
	f.mu.Unlock()
	from := c.Version()
	if a.Version != from+1 || a.Size != p.Size {
		// Another mount changed the file since: what is cached below our writes is not what is below them in the cluster.
		c.Commit(a.Version, p.Size)
		return f.replaceLocked(a)
	}
	c.Commit(a.Version, a.Size)
	failpoint.Hit(failpoint.MountFlushNoted)
	f.fs.nodes.committed(f.ino, from, a.Version)
	f.setAttr(a)
	return nil
}

// lingerOn flushes in the background what came after the last close, and keeps trying until it succeeds or the file is gone.
func (f *content) lingerOn() {
	f.mu.Lock()
	on := f.mu.linger
	f.mu.linger = true
	f.mu.Unlock()
	if on {
		return
	}
	f.fs.contents.hold(f)
	f.fs.background(func() {
		defer f.fs.contents.release(f)
		const soon = 100 * time.Millisecond
		for wait := soon; ; wait = min(2*wait, 30*time.Second) {
			removed := f.fs.removals.wait() // from before the attempt on
			err := f.flush(f.fs.ctx)
			if err == nil || f.fs.ctx.Err() != nil {
				break
			}
			if f.gone(err) {
				f.fs.log.Error("writes to a file that no longer exists were dropped", "ino", f.ino, "err", err)
				f.forgetWrites()
				break
			}
			f.fs.log.Error("a flush after the last close failed and is tried again", "ino", f.ino, "in", wait, "err", err)
			f.fs.pause(wait, soon, removed) // what was removed is perhaps this file, and its room is needed
		}
		f.mu.Lock()
		f.mu.linger = false
		f.mu.Unlock()
	})
}

// pause waits for a time, or only for a shorter one after something has happened, or until the mount ends.
func (fs *FS) pause(long, short time.Duration, happened <-chan struct{}) {
	t := time.NewTimer(long)
	defer t.Stop()
	select {
	case <-t.C:
		return
	case <-happened:
		t.Reset(min(long, short))
	case <-fs.ctx.Done():
		return
	}
	select {
	case <-t.C:
	case <-fs.ctx.Done():
	}
}

// gone reports whether a flush that failed with err can never succeed because the file is no more. A flush may not get as far as to be told: a full
// cluster refuses the bytes first.
func (f *content) gone(err error) bool {
	if errors.Is(err, objcache.NoSpace) {
		_, err = f.fs.backend.Getattr(f.fs.ctx, f.ino)
	}
	return errors.Is(err, objcache.NotExist) || errors.Is(err, objcache.Stale)
}

func (f *content) forgetWrites() {
	c := f.hold()
	defer f.fs.store.Release(c)
	f.fs.store.Remove(c)
	c.Commit(c.Version(), c.Size())
}

// drain flushes every content until ctx ends.
func (t *contents) drain(ctx context.Context) error {
	var all []error
	for _, f := range t.all() {
		if f.hasCache() {
			if err := f.flush(ctx); err != nil {
				all = append(all, objcache.Errorf(objcache.KindOf(err), "flush inode %d: %w", f.ino, err))
			}
		}
		t.release(f)
	}
	return errors.Join(all...)
}
