package fusetest

import (
	"context"
	"io"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/fuse"
	"github.com/objcache/objcache/fuse/cache"
)

// Open registers an open.
func (b *Backend) Open(ctx context.Context, ino objcache.Ino) (objcache.Attr, error) {
	if err := b.enter(ctx, "Open", ino); err != nil {
		return objcache.Attr{}, err
	}
	defer b.c.mu.Unlock()
	i, err := b.c.get(ino)
	if err != nil {
		return objcache.Attr{}, err
	}
	i.opens++
	b.opens[ino]++
	a := i.attr
	a.Locked = b.c.locks.any(ino)
	return a, nil
}

// Release undoes one Open. It panics when there was none.
func (b *Backend) Release(ino objcache.Ino) {
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	if b.opens[ino] == 0 {
		panic("fusetest: Release without Open")
	}
	b.opens[ino]--
	if i := b.c.inodes[ino]; i != nil {
		i.opens--
		b.c.collect(i)
	}
}

// Opens counts what this mount has open.
func (b *Backend) Opens() int {
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	n := 0
	for _, k := range b.opens {
		n += k
	}
	return n
}

// Expire ends this mount's session, as its lease does after a crash: its locks, opens and staged bytes are gone.
func (b *Backend) Expire() {
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	b.dropLocksLocked()
	clear(b.staged)
	for ino, n := range b.opens {
		if i := b.c.inodes[ino]; i != nil {
			i.opens -= n
			b.c.collect(i)
		}
	}
	clear(b.opens)
}

// ReadAt reads the newest version only.
func (b *Backend) ReadAt(ctx context.Context, ino objcache.Ino, version uint64, p []byte, off int64) (int, error) {
	if err := b.enter(ctx, "ReadAt", ino); err != nil {
		return 0, err
	}
	defer b.c.mu.Unlock()
	i, err := b.c.get(ino)
	switch {
	case err != nil:
		return 0, err
	case i.attr.Version != version:
		return 0, objcache.Errorf(objcache.Superseded, "inode %d is at %d, not %d", ino, i.attr.Version, version)
	case off >= i.attr.Size:
		return 0, nil
	case b.c.Discard:
		n := min(int64(len(p)), i.attr.Size-off)
		clear(p[:n])
		return int(n), nil
	}
	return copy(p, i.data[off:]), nil
}

// Stage keeps a copy that only this mount's Flush uses.
func (b *Backend) Stage(ctx context.Context, ino objcache.Ino, r objcache.Range, src io.ReaderAt) error {
	p, err := slice(src, r)
	if err != nil {
		return err
	}
	if err := b.enter(ctx, "Stage", ino); err != nil {
		return err
	}
	defer b.c.mu.Unlock()
	if !b.c.Discard {
		b.staged[ino] = append(b.staged[ino], stagedBytes{r, p})
	}
	return nil
}

func slice(src io.ReaderAt, r objcache.Range) ([]byte, error) {
	p := make([]byte, r.Len)
	n, err := src.ReadAt(p, r.Off)
	if err == io.EOF && int64(n) == r.Len {
		err = nil
	}
	return p, err
}

// Flush commits dirty bytes from Src and staged bytes from what was staged.
func (b *Backend) Flush(ctx context.Context, f fuse.Flush) (objcache.Attr, error) {
	a, err := b.flush(ctx, f)
	if err != nil {
		return a, err
	}
	b.c.mu.Lock()
	after := b.c.after
	b.c.mu.Unlock()
	if after != nil {
		err = after(ctx, "Flush", f.Ino)
	}
	return a, err
}

func (b *Backend) flush(ctx context.Context, f fuse.Flush) (objcache.Attr, error) {
	var fresh [][]byte
	for _, r := range f.Dirty {
		p, err := slice(f.Src, r)
		if err != nil {
			return objcache.Attr{}, err
		}
		fresh = append(fresh, p)
	}
	if err := b.enter(ctx, "Flush", f.Ino); err != nil {
		return objcache.Attr{}, err
	}
	defer b.c.mu.Unlock()
	i, err := b.c.get(f.Ino)
	if err != nil {
		return objcache.Attr{}, err
	}
	if f.Session != 0 && f.Session != b.session {
		return objcache.Attr{}, objcache.Errorf(objcache.Fenced, "session %d", f.Session)
	}
	if f.IfVersion != 0 && f.IfVersion != i.attr.Version {
		return objcache.Attr{}, objcache.Errorf(objcache.Precondition, "inode %d is at %d, not %d", f.Ino, i.attr.Version, f.IfVersion)
	}
	if f.Size > i.attr.Size {
		i.resize(b.c.Discard, f.Size)
	}
	if !b.c.Discard {
		if err := b.apply(i, f, fresh); err != nil {
			return objcache.Attr{}, err
		}
	}
	delete(b.staged, f.Ino)
	i.attr.Version++
	if f.Ctime.IsZero() {
		f.Ctime = time.Now()
	}
	i.attr.Mtime = f.Mtime
	if f.Ctime.After(i.attr.Ctime) {
		i.attr.Ctime = f.Ctime
	}
	return i.attr, nil
}

func (b *Backend) apply(i *inode, f fuse.Flush, fresh [][]byte) error {
	for _, want := range f.Staged {
		var have cache.Ranges
		for _, st := range b.staged[f.Ino] { // oldest first
			cut := want.Intersect(st.r)
			if cut.Len == 0 {
				continue
			}
			copy(i.data[cut.Off:cut.End()], st.p[cut.Off-st.r.Off:])
			have = have.Add(cut)
		}
		for _, lost := range have.Outside(want) { // the end of a session took them
			p, err := slice(f.Src, lost)
			if err != nil {
				return err
			}
			copy(i.data[lost.Off:], p)
		}
	}
	for k, r := range f.Dirty {
		copy(i.data[r.Off:r.End()], fresh[k])
	}
	return nil
}

// Append adds p at the end.
func (b *Backend) Append(ctx context.Context, ino objcache.Ino, p []byte, mtime time.Time) (int64, objcache.Attr, error) {
	if err := b.enter(ctx, "Append", ino); err != nil {
		return 0, objcache.Attr{}, err
	}
	defer b.c.mu.Unlock()
	i, err := b.c.get(ino)
	if err != nil {
		return 0, objcache.Attr{}, err
	}
	off := i.attr.Size
	i.resize(b.c.Discard, off+int64(len(p)))
	if !b.c.Discard {
		copy(i.data[off:], p)
	}
	i.attr.Version++
	i.attr.Mtime, i.attr.Ctime = mtime, time.Now()
	return off, i.attr, nil
}

// Sync has nothing to do: this cluster has no S3.
func (b *Backend) Sync(ctx context.Context, ino objcache.Ino, closing bool) error {
	if err := b.enter(ctx, "Sync", ino); err != nil {
		return err
	}
	b.c.mu.Unlock()
	return nil
}
