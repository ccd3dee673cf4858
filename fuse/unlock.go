package fuse

import (
	"context"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/filelock"
)

// unlock is F_UNLCK: what was written is committed before the lock goes. If it cannot be, the lock stays and the program is told.
func (fs *FS) unlock(ctx context.Context, f *content, k lockKey, start, end uint64) error {
	if len(fs.locks.holds(k, start, end)) == 0 {
		return nil
	}
	if err := f.flush(ctx); err != nil {
		return err
	}
	o, done := fs.locks.use(k)
	defer done()
	if err := put(ctx, o.turn); err != nil {
		return err
	}
	defer func() { <-o.turn }()
	return fs.giveBack(ctx, f, o, k, start, end)
}

// giveBack tells the cluster. The caller has the owner's turn.
func (fs *FS) giveBack(ctx context.Context, f *content, o *lockOwner, k lockKey, start, end uint64) error {
	if err := f.flush(ctx); err != nil { // written since
		return err
	}
	if err := fs.backend.Unlock(ctx, objcache.Lock{Ino: k.ino, Flock: k.flock, Owner: k.owner, Start: start, End: end}); err != nil {
		return err
	}
	fs.locks.gave(o, start, end)
	return nil
}

// unlockClosed takes an owner's locks away because of a close. It goes on in the background until it is done; the channel is closed then.
func (fs *FS) unlockClosed(f *content, ks ...lockKey) <-chan struct{} {
	finished := make(chan struct{})
	done := fs.locks.beginClose(f.ino)
	fs.contents.hold(f)
	fs.background(func() {
		defer close(finished)
		defer done()
		defer fs.contents.release(f)
		for _, k := range ks {
			fs.unlockFinally(f, k)
		}
	})
	return finished
}

// unlockFinally unlocks whatever becomes of the bytes: a flush that failed has told, or will tell, every descriptor of the file.
func (fs *FS) unlockFinally(f *content, k lockKey) {
	o, done := fs.locks.use(k)
	defer done()
	if put(fs.ctx, o.turn) != nil {
		return
	}
	defer func() { <-o.turn }()
	if err := f.flush(fs.ctx); err != nil {
		fs.log.Error("a lock ends with its file although what was written is not committed", "ino", k.ino, "err", err)
	}
	for pause := 10 * time.Millisecond; len(fs.locks.holds(k, 0, filelock.EOF)) > 0; pause = min(2*pause, time.Second) {
		err := fs.backend.Unlock(fs.ctx, objcache.Lock{Ino: k.ino, Flock: k.flock, Owner: k.owner, End: filelock.EOF})
		if err == nil {
			fs.locks.gave(o, 0, filelock.EOF)
			return
		}
		if fs.ctx.Err() != nil {
			return // the session ends with the mount
		}
		fs.log.Warn("a closed file is still locked; trying again", "ino", k.ino, "err", err)
		fs.pause(pause, pause, nil)
	}
}

// closedBy releases the fcntl locks of a process that closes a descriptor of the file, any of them.
func (fs *FS) closedBy(cancel <-chan struct{}, h *handle, owner uint64) {
	k := lockKey{ino: h.f.ino, owner: owner}
	if len(fs.locks.holds(k, 0, filelock.EOF)) == 0 {
		return
	}
	select {
	case <-fs.unlockClosed(h.f, k):
	case <-cancel:
	}
}

// releasedBy releases what was locked through a description that is no more: flock(2) and F_OFD_SETLK.
func (fs *FS) releasedBy(h *handle, fh uint64) {
	if ks := fs.locks.lockedThrough(h.f.ino, fh); len(ks) > 0 {
		fs.unlockClosed(h.f, ks...)
	}
}
