package fuse

import (
	"context"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/objcache/objcache"
)

// blockSize is st_blksize: what stdio takes as the size of its buffers.
const blockSize = 128 << 10

func fillAttr(a objcache.Attr, out *fuse.Attr) {
	*out = fuse.Attr{
		Ino: uint64(a.Ino), Size: uint64(a.Size), Blocks: uint64(a.Size+511) / 512, Mode: a.Mode, Nlink: a.Nlink,
		Owner: fuse.Owner{Uid: a.UID, Gid: a.GID}, Rdev: a.Rdev, Blksize: blockSize,
	}
	out.Atime, out.Atimensec = split(a.Atime)
	out.Mtime, out.Mtimensec = split(a.Mtime)
	out.Ctime, out.Ctimensec = split(a.Ctime)
}

// split gives seconds and nanoseconds since 1970; the zero time is 1970.
func split(t time.Time) (uint64, uint32) {
	if t.IsZero() {
		return 0, 0
	}
	return uint64(t.Unix()), uint32(t.Nanosecond())
}

// seen merges attributes that came from the cluster with what this mount has of an open file: its own writes, or the older version it still
// serves. Size and bytes always belong together: a file with nothing pending is switched to a newer version first.
func (fs *FS) seen(ctx context.Context, a objcache.Attr) (objcache.Attr, error) {
	if !a.IsRegular() {
		return a, nil
	}
	f := fs.contents.find(a.Ino)
	if f == nil {
		return a, nil
	}
	defer fs.contents.release(f)
	if !f.current(a) && !f.pending().Due() {
		if err := f.adopt(ctx, a); err != nil {
			return a, err
		}
	}
	return f.overlay(a), nil
}

func (fs *FS) fillEntry(n *node, a objcache.Attr, out *fuse.EntryOut) {
	out.NodeId = n.id
	out.SetEntryTimeout(fs.cfg.EntryTTL)
	out.SetAttrTimeout(fs.attrTTL(a))
	fillAttr(a, &out.Attr)
}

// attrTTL is zero for files in strict mode: every read(2) then asks for the size.
func (fs *FS) attrTTL(a objcache.Attr) time.Duration {
	if fs.cfg.Consistency == Strict && a.IsRegular() {
		return 0
	}
	return fs.cfg.EntryTTL
}

func (fs *FS) fillAttrOut(n *node, a objcache.Attr, out *fuse.AttrOut) {
	fs.nodes.told(n, a.Version)
	out.SetTimeout(fs.attrTTL(a))
	fillAttr(a, &out.Attr)
}

// GetAttr is stat(2) and fstat(2).
func (fs *FS) GetAttr(cancel <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	ctx, done := fs.begin(cancel)
	defer done()
	n, err := fs.nodes.get(in.NodeId)
	if err != nil {
		return status(err)
	}
	a, err := fs.backend.Getattr(ctx, n.in.ino)
	if err == nil {
		a, err = fs.seen(ctx, a)
	}
	if err != nil {
		return status(err)
	}
	fs.fillAttrOut(n, a, out)
	return fuse.OK
}
