package fuse

import (
	"context"
	"errors"
	"io"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/fuse/cache"
)

// rotRetries is how often a block that rotted is fetched again before the program gets EIO.
const rotRetries = 2

// Read answers from the cache file, fetching what is missing first.
func (fs *FS) Read(cancel <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	h, err := fs.handles.get(in.Fh)
	if err != nil {
		return nil, status(err)
	}
	if err := h.usable(); err != nil {
		return nil, status(err)
	}
	buf = buf[:min(len(buf), int(in.Size))]
	if fs.cfg.Consistency == Strict {
		if err := fs.newest(cancel, h.f); err != nil {
			return nil, status(err)
		}
	}
	n, err := h.f.read(fs, cancel, buf, int64(in.Offset))
	if err != nil {
		return nil, status(err)
	}
	fs.count.readBytes.Add(uint64(n))
	return fuse.ReadResultVector([][]byte{buf[:n]}), fuse.OK
}

// newest makes a strict reader see what every other mount has written.
func (fs *FS) newest(cancel <-chan struct{}, f *content) error {
	ctx, done := fs.begin(cancel)
	defer done()
	a, err := fs.backend.Getattr(ctx, f.ino)
	if err != nil {
		return err
	}
	return f.adopt(ctx, a)
}

// read fills p from off; it is short only at the end of the file.
func (f *content) read(fs *FS, cancel <-chan struct{}, p []byte, off int64) (int, error) {
	want := objcache.Range{Off: off, Len: int64(len(p))}
	f.readAhead(want)
	for rotted := 0; ; {
		c := f.hold()
		n, err := c.ReadAt(p, off)
		fs.store.Release(c)
		var absent *cache.AbsentError
		switch {
		case errors.As(err, &absent):
			err := f.fetchFor(fs, cancel, want)
			if errors.Is(err, objcache.NoSpace) {
				return f.readThrough(fs, cancel, p, off)
			}
			if err != nil {
				return 0, err
			}
		case errors.Is(err, objcache.Corrupt) && rotted < rotRetries:
			rotted++
			fs.count.rotted.Add(1)
			fs.log.Error("a block of the node-local cache rotted", "ino", f.ino, "err", err)
		default:
			return n, err
		}
	}
}

// readThrough reads past a cache whose disk is full: what this node wrote on top of what the cluster has.
func (f *content) readThrough(fs *FS, cancel <-chan struct{}, p []byte, off int64) (int, error) {
	ctx, done := fs.begin(cancel)
	defer done()
	c := f.hold()
	defer fs.store.Release(c)
	pending := c.Pending()
	if off >= pending.Size {
		return 0, nil
	}
	p = p[:min(int64(len(p)), pending.Size-off)]
	n, err := fs.backend.ReadAt(ctx, f.ino, c.Version(), p, off)
	if errors.Is(err, objcache.Superseded) {
		if err := f.follow(ctx, c); err != nil {
			return 0, err
		}
		return f.read(fs, cancel, p, off)
	}
	if err != nil {
		return 0, err
	}
	clear(p[n:]) // what this node has written behind the committed end
	here := objcache.Range{Off: off, Len: int64(len(p))}
	for _, r := range append(pending.Dirty.Within(here), pending.Staged.Within(here)...) {
		if _, err := c.Raw().ReadAt(p[r.Off-off:r.End()-off], r.Off); err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
	}
	fs.count.fetchedBytes.Add(uint64(n))
	return len(p), nil
}

func (f *content) fetchFor(fs *FS, cancel <-chan struct{}, r objcache.Range) error {
	ctx, done := fs.begin(cancel)
	defer done()
	return f.fetch(ctx, r)
}

// fetch brings every region that r touches into the cache and waits for it.
func (f *content) fetch(ctx context.Context, r objcache.Range) error {
	var flights []*flight
	for at := r.Off / regionSize; at*regionSize < r.End(); at++ {
		if fl := f.fly(at, true); fl != nil {
			flights = append(flights, fl)
		}
	}
	var first error
	for _, fl := range flights {
		select {
		case <-fl.done:
			if first == nil {
				first = fl.err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return first
}
