package fuse

import (
	"context"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/objcache/objcache"
)

// wanted translates a SETATTR. "Now" is this mount's clock.
func wanted(in *fuse.SetAttrIn) objcache.SetAttr {
	var set objcache.SetAttr
	if m, ok := in.GetMode(); ok {
		set.Mode = &m
	}
	if u, ok := in.GetUID(); ok {
		set.UID = &u
	}
	if g, ok := in.GetGID(); ok {
		set.GID = &g
	}
	if s, ok := in.GetSize(); ok {
		size := int64(s)
		set.Size = &size
	}
	if t, ok := in.GetATime(); ok {
		set.Atime = &t
	}
	if t, ok := in.GetMTime(); ok {
		set.Mtime = &t
	}
	set.KillPriv = in.Valid&fuse.FATTR_KILL_SUIDGID != 0
	return set
}

// SetAttr is chmod(2), chown(2), utimensat(2), truncate(2) and the second half of O_TRUNC.
func (fs *FS) SetAttr(cancel <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	ctx, done := fs.begin(cancel)
	defer done()
	n, err := fs.nodes.get(in.NodeId)
	if err != nil {
		return status(err)
	}
	a, err := fs.setattr(ctx, n.in.ino, wanted(in))
	if err != nil {
		return status(err)
	}
	fs.fillAttrOut(n, a, out)
	return fuse.OK
}

func (fs *FS) setattr(ctx context.Context, ino objcache.Ino, set objcache.SetAttr) (objcache.Attr, error) {
	f := fs.contents.find(ino)
	if f == nil {
		return fs.backend.Setattr(ctx, ino, set)
	}
	defer fs.contents.release(f)
	if set.Size != nil {
		return f.resize(ctx, set)
	}
	a, err := fs.backend.Setattr(ctx, ino, set)
	if err != nil {
		return a, err
	}
	f.current(a)
	if set.Mtime != nil {
		f.setMtime(*set.Mtime)
	}
	return f.overlay(a), nil
}

// resize truncates or extends the committed file. What is pending below the cut is flushed first.
func (f *content) resize(ctx context.Context, set objcache.SetAttr) (objcache.Attr, error) {
	unlock, err := f.ranges.lock(ctx, wholeFile)
	if err != nil {
		return objcache.Attr{}, err
	}
	defer unlock()
	if !f.hasCache() { // an open of it is still on its way
		return f.fs.backend.Setattr(ctx, f.ino, set)
	}
	if _, doubtful := f.doubted(); doubtful || f.pendingBelow(*set.Size) {
		if err := f.flushLocked(ctx); err != nil {
			return objcache.Attr{}, err
		}
	}
	a, err := f.fs.backend.Setattr(ctx, f.ino, set)
	if err != nil {
		return a, err
	}
	c := f.hold()
	defer f.fs.store.Release(c)
	from := c.Version()
	if a.Size != *set.Size || a.Version > from+1 || a.Version < from {
		return a, f.replaceLocked(a)
	}
	if err := c.Resize(a.Version, a.Size); err != nil {
		return a, err
	}
	f.fs.nodes.committed(f.ino, from, a.Version)
	f.setAttr(a)
	return a, nil
}

// pendingBelow reports whether a cut at size would spare something that no flush has committed.
func (f *content) pendingBelow(size int64) bool {
	p := f.pending()
	keep := objcache.Range{Len: size}
	return len(p.Dirty.Within(keep)) > 0 || len(p.Staged.Within(keep)) > 0
}
