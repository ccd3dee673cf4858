package fuse

import (
	"context"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/failpoint"
)

// entry answers a request that found or made a name.
func (fs *FS) entry(ctx context.Context, dir objcache.Ino, name string, a objcache.Attr, out *fuse.EntryOut) fuse.Status {
	a, err := fs.seen(ctx, a)
	if err != nil {
		return status(err)
	}
	fs.fillEntry(fs.nodes.ref(a, dir, name), a, out)
	return fuse.OK
}

// Lookup finds one name. That a name is not there is never cached by the kernel.
func (fs *FS) Lookup(cancel <-chan struct{}, h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	ctx, done := fs.begin(cancel)
	defer done()
	dir, err := fs.nodes.get(h.NodeId)
	if err != nil {
		return status(err)
	}
	a, err := fs.backend.Lookup(ctx, dir.in.ino, name)
	if err != nil {
		return status(err)
	}
	return fs.entry(ctx, dir.in.ino, name, a, out)
}

// Forget takes back references; it never waits.
func (fs *FS) Forget(id, n uint64) { fs.nodes.forget(id, n) }

func (fs *FS) make(cancel <-chan struct{}, h *fuse.InHeader, name string, n NewNode, out *fuse.EntryOut) fuse.Status {
	ctx, done := fs.begin(cancel)
	defer done()
	dir, err := fs.nodes.get(h.NodeId)
	if err != nil {
		return status(err)
	}
	n.Credentials = Credentials{UID: h.Uid, GID: h.Gid}
	a, err := fs.backend.Create(ctx, dir.in.ino, name, n)
	failpoint.Hit(failpoint.MountNamed)
	if err != nil {
		return status(err)
	}
	return fs.entry(ctx, dir.in.ino, name, a, out)
}

// Mknod makes a file, fifo, socket or device.
func (fs *FS) Mknod(cancel <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	return fs.make(cancel, &in.InHeader, name, NewNode{Mode: in.Mode, Rdev: in.Rdev}, out)
}

// Mkdir makes a directory.
func (fs *FS) Mkdir(cancel <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	return fs.make(cancel, &in.InHeader, name, NewNode{Mode: in.Mode&07777 | objcache.ModeDir}, out)
}

// Symlink makes a symbolic link.
func (fs *FS) Symlink(cancel <-chan struct{}, h *fuse.InHeader, target, name string, out *fuse.EntryOut) fuse.Status {
	return fs.make(cancel, h, name, NewNode{Mode: objcache.ModeSymlink | 0o777, Target: target}, out)
}

// Readlink answers from memory: a symlink never changes its target.
func (fs *FS) Readlink(_ <-chan struct{}, h *fuse.InHeader) ([]byte, fuse.Status) {
	n, err := fs.nodes.get(h.NodeId)
	if err != nil {
		return nil, status(err)
	}
	return []byte(n.in.target), fuse.OK
}

// Unlink removes a name; an open file lives on until its last close.
func (fs *FS) Unlink(cancel <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	return fs.inDir(cancel, h.NodeId, func(ctx context.Context, dir objcache.Ino) error {
		err := fs.backend.Unlink(ctx, dir, name)
		fs.removals.happened()
		return err
	})
}

// Rmdir removes an empty directory.
func (fs *FS) Rmdir(cancel <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	return fs.inDir(cancel, h.NodeId, func(ctx context.Context, dir objcache.Ino) error { return fs.backend.Rmdir(ctx, dir, name) })
}

func (fs *FS) inDir(cancel <-chan struct{}, id uint64, do func(context.Context, objcache.Ino) error) fuse.Status {
	ctx, done := fs.begin(cancel)
	defer done()
	dir, err := fs.nodes.get(id)
	if err != nil {
		return status(err)
	}
	return status(do(ctx, dir.in.ino))
}

const (
	renameNoReplace = 1
	renameExchange  = 2
)

// Rename moves a name, with the flags of renameat2(2); RENAME_WHITEOUT is EINVAL.
func (fs *FS) Rename(cancel <-chan struct{}, in *fuse.RenameIn, name, newName string) fuse.Status {
	if in.Flags&^(renameNoReplace|renameExchange) != 0 {
		return fuse.Status(syscall.EINVAL)
	}
	to, err := fs.nodes.get(in.Newdir)
	if err != nil {
		return status(err)
	}
	return fs.inDir(cancel, in.NodeId, func(ctx context.Context, dir objcache.Ino) error {
		err := fs.backend.Rename(ctx, dir, name, to.in.ino, newName, in.Flags)
		fs.removals.happened() // of what had the new name
		return err
	})
}

// Link makes another name of a file.
func (fs *FS) Link(cancel <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	ctx, done := fs.begin(cancel)
	defer done()
	dir, err := fs.nodes.get(in.NodeId)
	if err != nil {
		return status(err)
	}
	n, err := fs.nodes.get(in.Oldnodeid)
	if err != nil {
		return status(err)
	}
	a, err := fs.backend.Link(ctx, n.in.ino, dir.in.ino, name)
	if err != nil {
		return status(err)
	}
	return fs.entry(ctx, dir.in.ino, name, a, out)
}
