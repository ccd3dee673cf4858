package fuse

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/fuse/cache"
)

// content is a regular file that is open on this mount, or has writes that no flush has committed yet.
type content struct {
	fs  *FS
	ino objcache.Ino

	refs, opens int // guarded by the table: opens are the Opens that the backend is owed a Release for

	ranges rangeLock // who writes, stages, flushes or switches the version; held over the network

	mu struct {
		sync.Mutex
		c       *cache.File // referenced; nil until the first adopt
		attr    objcache.Attr
		writers int
		flights map[flightKey]*flight
		ahead   readahead
		stream  stream
		linger  bool // a background flush is on its way
		locked  bool // there are locks on it, or were since it was opened

		doubtful bool   // the session that the pending writes belong to is over: they are good on version base only
		base     uint64 // when doubtful
	}
}

type contents struct {
	mu    sync.Mutex
	byIno map[objcache.Ino]*content
}

// find returns the content of an inode with one more reference, or nil.
func (t *contents) find(ino objcache.Ino) *content {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.byIno[ino]
	if f != nil {
		f.refs++
	}
	return f
}

// acquire returns the content of an inode that the backend has just opened, switched to those attributes.
func (fs *FS) acquire(ctx context.Context, a objcache.Attr) (*content, error) {
	t := &fs.contents
	t.mu.Lock()
	f := t.byIno[a.Ino]
	if f == nil {
		f = &content{fs: fs, ino: a.Ino}
		f.mu.flights = make(map[flightKey]*flight)
		t.byIno[a.Ino] = f
	}
	f.refs++
	f.opens++
	t.mu.Unlock()
	if err := f.adopt(ctx, a); err != nil {
		f.closed()
		return nil, err
	}
	return f, nil
}

// closed undoes acquire. Writes that nobody has flushed and nobody will (stores through a mapping after the last close) are flushed in the background.
func (f *content) closed() {
	f.mu.Lock()
	writers := f.mu.writers
	f.mu.Unlock()
	if writers == 0 && f.hasCache() && f.pending().Due() {
		f.lingerOn()
	}
	f.fs.contents.release(f)
}

// release gives a reference back. With the last one the backend learns of the closes, and the bytes stay in the cache.
func (t *contents) release(f *content) {
	t.mu.Lock()
	f.refs--
	last := f.refs == 0
	opens := f.opens
	if last {
		delete(t.byIno, f.ino)
	}
	t.mu.Unlock()
	if !last {
		return
	}
	f.mu.Lock()
	c := f.mu.c
	f.mu.c = nil
	f.mu.Unlock()
	if c != nil {
		f.fs.store.Release(c)
	}
	for range opens {
		f.fs.backend.Release(f.ino)
	}
}

func (f *content) hasCache() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.c != nil
}

// hold returns the cache file, referenced.
func (f *content) hold() *cache.File {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fs.store.Hold(f.mu.c)
	return f.mu.c
}

func (f *content) pending() cache.Pending {
	f.mu.Lock()
	c := f.mu.c
	f.mu.Unlock()
	if c == nil {
		return cache.Pending{}
	}
	return c.Pending()
}

func (f *content) setAttr(a objcache.Attr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.attr = a
}

// setMtime makes the flush that is due carry the time that utimensat(2) has set.
func (f *content) setMtime(t time.Time) {
	if f.pending().Due() {
		c := f.hold()
		defer f.fs.store.Release(c)
		c.SetMtime(t)
	}
}

// version is that of the committed bytes this mount serves.
func (f *content) version() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.c.Version()
}

// nameless reports whether the file lives only because somebody has it open.
func (f *content) nameless() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.attr.Nlink == 0
}

// lockedOnce notes that programs lock the file: it is read through this process from now on.
func (f *content) lockedOnce() {
	f.mu.Lock()
	f.mu.locked = true
	f.mu.Unlock()
}

// overlay puts the size and time that this mount serves over attributes of the cluster.
func (f *content) overlay(a objcache.Attr) objcache.Attr {
	f.mu.Lock()
	c := f.mu.c
	f.mu.Unlock()
	if c == nil {
		return a
	}
	p := c.Pending()
	a.Size, a.Version = p.Size, c.Version()
	if p.Due() {
		a.Mtime = p.Mtime
		if p.Changed.After(a.Ctime) {
			a.Ctime = p.Changed
		}
	}
	return a
}

// adopt switches to the version of a if that is newer, keeping on top what this node wrote. It waits for flushes and stages that are on their way.
func (f *content) adopt(ctx context.Context, a objcache.Attr) error {
	if f.current(a) {
		return nil
	}
	unlock, err := f.ranges.lock(ctx, wholeFile)
	if err != nil {
		return err
	}
	defer unlock()
	if f.current(a) {
		return nil
	}
	if _, doubtful := f.doubted(); doubtful { // its writes must not move on to a version that they were not made on
		if err := f.flushLocked(ctx); err != nil && !errors.Is(err, objcache.Fenced) {
			return err
		}
		if f.current(a) {
			return nil
		}
	}
	return f.replaceLocked(a)
}

// current reports whether a is no news; attributes of the same version are kept.
func (f *content) current(a objcache.Attr) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.c == nil || a.Version > f.mu.c.Version() {
		return false
	}
	if a.Version == f.mu.c.Version() {
		f.mu.attr = a
	}
	return true
}

// replaceLocked switches data and size together to those of a, then tells the kernel. The caller holds the whole range.
func (f *content) replaceLocked(a objcache.Attr) error {
	f.mu.Lock()
	old := f.mu.c
	f.mu.Unlock()
	c, err := f.fileFor(old, a)
	if err != nil {
		return err
	}
	f.mu.Lock()
	f.mu.c, f.mu.attr = c, a
	f.mu.flights = make(map[flightKey]*flight)
	f.mu.ahead, f.mu.stream = readahead{}, stream{}
	f.mu.Unlock()
	if old != nil {
		f.fs.store.Release(old)
		f.fs.count.versions.Add(1)
		f.fs.inval.changed(f.ino, c.Version())
	}
	return nil
}

// fileFor finds or makes the cache file of a version.
func (f *content) fileFor(old *cache.File, a objcache.Attr) (*cache.File, error) {
	store := f.fs.store
	if old != nil {
		return store.Rebase(old, a.Version, a.Size)
	}
	kept := store.Acquire(f.ino)
	if kept == nil {
		return store.Create(f.ino, a.Version, a.Size), nil
	}
	if kept.Version() == a.Version && kept.Size() == a.Size {
		return kept, nil
	}
	defer store.Release(kept)
	return store.Rebase(kept, a.Version, a.Size)
}

// all returns every content, referenced.
func (t *contents) all() []*content {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []*content
	for _, f := range t.byIno {
		f.refs++
		out = append(out, f)
	}
	return out
}

// abandon lets go of everything without a word to the backend; pending writes stay on disk.
func (t *contents) abandon() {
	for _, f := range t.all() {
		f.mu.Lock()
		c := f.mu.c
		f.mu.c = nil
		f.mu.Unlock()
		if c != nil {
			f.fs.store.Release(c)
		}
	}
}
