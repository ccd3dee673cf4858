package fuse

import (
	"context"
	"errors"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/failpoint"
)

// Open is open(2) of a file that exists: from here on this mount serves what every mount had closed before.
//
// A file whose last name went between the kernel's LOOKUP and this OPEN is Stale; the kernel looks the name up again, once. A program sees ESTALE only if
// the name is replaced a second time just then.
func (fs *FS) Open(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	ctx, done := fs.begin(cancel)
	defer done()
	n, err := fs.nodes.get(in.NodeId)
	if err != nil {
		return status(err)
	}
	f, err := fs.open(ctx, n.in.ino)
	if err != nil {
		return status(err)
	}
	if in.Mode&fuse.OPEN_KILL_SUIDGID != 0 {
		f.killPriv(ctx)
	}
	mayRetry := fs.retried.first(in.Pid, f.ino)
	if mayRetry && f.nameless() { // the kernel came by a name that another mount has removed, and shall look again
		fs.retried.remember(in.Pid, f.ino)
		f.closed()
		return fuse.Status(syscall.ESTALE)
	}
	return status(fs.opened(n, f, in.Flags, in.Pid, mayRetry, out))
}

// open registers an open at the backend. An expired attempt leaves nothing behind.
func (fs *FS) open(ctx context.Context, ino objcache.Ino) (*content, error) {
	a, err := fs.backend.Open(ctx, ino)
	if err != nil {
		return nil, err
	}
	f, err := fs.acquire(ctx, a)
	if err != nil {
		return nil, err
	}
	if a.Locked {
		f.lockedOnce()
	}
	return f, nil
}

// opened decides the way of opening and answers. mayRetry: the caller has not been answered ESTALE for this open yet.
func (fs *FS) opened(n *node, f *content, flags, pid uint32, mayRetry bool, out *fuse.OpenOut) error {
	h := &handle{n: n, f: f, flags: flags}
	c := f.hold()
	defer fs.store.Release(c)
	d := fs.admit(n, f, c, h, mayRetry)
	if d.way == wayRetry {
		fs.retried.remember(pid, f.ino)
		fs.count.retries.Add(1)
		f.closed()
		return syscall.ESTALE
	}
	h.way = d.way
	if h.writable() {
		f.mu.Lock()
		f.mu.writers++
		f.mu.Unlock()
		c.SetPlace(fs.nodes.place(n.in))
	}
	out.OpenFlags, out.BackingID = d.flags, d.backing
	out.Fh = fs.handles.add(h)
	if d.resize {
		fs.inval.attributes(n.id)
	}
	return nil
}

// Create makes a file and opens it. Without O_EXCL a file that somebody else has just made is opened instead.
func (fs *FS) Create(cancel <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	ctx, done := fs.begin(cancel)
	defer done()
	dir, err := fs.nodes.get(in.NodeId)
	if err != nil {
		return status(err)
	}
	a, err := fs.createOrFind(ctx, dir.in.ino, in, name)
	if err != nil {
		return status(err)
	}
	f, err := fs.acquire(ctx, a)
	if err != nil {
		return status(err)
	}
	a = f.overlay(a)
	n := fs.nodes.ref(a, dir.in.ino, name)
	fs.fillEntry(n, a, &out.EntryOut)
	if err := fs.opened(n, f, in.Flags, in.Pid, false, &out.OpenOut); err != nil {
		fs.nodes.forget(n.id, 1)
		return status(err)
	}
	return fuse.OK
}

// createOrFind returns a file that is open at the backend.
func (fs *FS) createOrFind(ctx context.Context, dir objcache.Ino, in *fuse.CreateIn, name string) (objcache.Attr, error) {
	n := NewNode{Mode: in.Mode&07777 | objcache.ModeRegular, Open: true, Credentials: Credentials{UID: in.Uid, GID: in.Gid}}
	a, err := fs.backend.Create(ctx, dir, name, n)
	failpoint.Hit(failpoint.MountNamed)
	if !errors.Is(err, objcache.Exist) || in.Flags&syscall.O_EXCL != 0 {
		return a, err
	}
	a, err = fs.backend.Lookup(ctx, dir, name)
	switch {
	case err != nil:
		return a, err
	case a.IsDir():
		return a, syscall.EISDIR
	case !a.IsRegular():
		return a, syscall.ESTALE // the kernel looks again and finds the symlink or device
	}
	if in.Flags&syscall.O_TRUNC != 0 {
		var zero int64
		if a, err = fs.setattr(ctx, a.Ino, objcache.SetAttr{Size: &zero}); err != nil {
			return a, err
		}
	}
	return fs.backend.Open(ctx, a.Ino)
}

// Release ends an open file description. The kernel ignores errors here: they were reported at FLUSH.
func (fs *FS) Release(_ <-chan struct{}, in *fuse.ReleaseIn) {
	h := fs.handles.remove(in.Fh)
	if h == nil {
		return
	}
	fs.releasedBy(h, in.Fh)
	if h.writable() {
		h.f.mu.Lock()
		h.f.mu.writers--
		h.f.mu.Unlock()
	}
	fs.leave(h)
	h.f.closed()
}
