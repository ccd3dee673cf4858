package fuse

import (
	"context"
	"errors"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/fuse/cache"
)

// sessionLost is called when the servers have ended this mount's session, before it uses the next one. Locks are gone, and with them the descriptors
// that held them. What was written and not committed is committed only if nobody has changed the file meanwhile.
func (fs *FS) sessionLost() {
	descriptions, files := fs.locks.lost()
	for _, ino := range files {
		fs.inval.all(ino) // so that reads through them come here, to be refused
	}
	doubtful := 0
	for _, f := range fs.contents.all() {
		if f.doubt() {
			doubtful++
			f.lingerOn()
		}
		fs.contents.release(f)
	}
	fs.count.sessionsLost.Add(1)
	fs.log.Error("the session of this mount has ended", "lostDescriptors", descriptions, "filesWithUncommittedWrites", doubtful)
}

// doubt makes the next flush depend on the version that the pending writes were made on; false: there are none.
func (f *content) doubt() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.c == nil || !f.mu.c.Pending().Due() {
		return false
	}
	if !f.mu.doubtful {
		f.mu.doubtful, f.mu.base = true, f.mu.c.Version()
	}
	return true
}

func (f *content) doubted() (base uint64, yes bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.base, f.mu.doubtful
}

func (f *content) trusted() {
	f.mu.Lock()
	f.mu.doubtful = false
	f.mu.Unlock()
}

// commit flushes what is pending, under the session it belongs to. Fenced when it was set aside instead.
func (f *content) commitLocked(ctx context.Context, c *cache.File, p cache.Pending) (objcache.Attr, error) {
	fl := Flush{Ino: f.ino, Dirty: p.Dirty, Staged: p.Staged, Src: c.Raw(), Size: p.Size, Mtime: p.Mtime, Ctime: p.Changed}
	for {
		fl.Session = f.fs.backend.Session()
		base, doubtful := f.doubted() // after the number: with the next number everything is marked
		fl.IfVersion = 0
		if doubtful {
			fl.IfVersion = base
		}
		a, err := f.fs.backend.Flush(ctx, fl)
		switch {
		case err == nil:
			f.trusted()
			return a, nil
		case doubtful && errors.Is(err, objcache.Precondition):
			return a, f.setAsideLocked(ctx, c, p)
		case !errors.Is(err, objcache.Fenced) || f.fs.backend.Session() == fl.Session:
			return a, err
		}
	}
}

// setAsideLocked makes a conflict file of what cannot be committed, and goes on with the file as others have made it.
func (f *content) setAsideLocked(ctx context.Context, c *cache.File, p cache.Pending) error {
	a, err := f.fs.backend.Getattr(ctx, f.ino)
	if err != nil {
		return err
	}
	l := c.Leftover(p)
	same, err := f.fs.alreadyThere(ctx, a, l)
	if err == nil && !same {
		err = f.fs.setAside(ctx, a, l)
	}
	if err != nil {
		return err
	}
	c.Commit(c.Version(), c.Size())
	f.trusted()
	if err := f.replaceLocked(a); err != nil || same {
		return err
	}
	return objcache.Errorf(objcache.Fenced, "writes to inode %d met a newer version and were set aside", f.ino)
}
