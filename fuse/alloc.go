package fuse

import (
	"context"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/objcache/objcache"
)

// Fallocate extends the file, or writes zeros where a hole is asked for: the cluster promises no space ahead.
func (fs *FS) Fallocate(cancel <-chan struct{}, in *fuse.FallocateIn) fuse.Status {
	ctx, done := fs.begin(cancel)
	defer done()
	h, err := fs.handles.get(in.Fh)
	if err != nil {
		return status(err)
	}
	r := objcache.Range{Off: int64(in.Offset), Len: int64(in.Length)}
	switch in.Mode {
	case 0:
		err = h.f.grow(ctx, r.End())
	case unix.FALLOC_FL_KEEP_SIZE:
	case unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE, unix.FALLOC_FL_ZERO_RANGE | unix.FALLOC_FL_KEEP_SIZE:
		err = h.f.zero(ctx, r)
	case unix.FALLOC_FL_ZERO_RANGE:
		if err = h.f.zero(ctx, r); err == nil {
			err = h.f.grow(ctx, r.End())
		}
	default:
		err = syscall.EOPNOTSUPP
	}
	if err == nil && fs.cfg.Consistency == Strict {
		err = h.f.flush(ctx)
	}
	return status(err)
}

func (f *content) grow(ctx context.Context, size int64) error {
	if size < 0 || size > objcache.MaxFileSize {
		return objcache.Errorf(objcache.TooLarge, "inode %d", f.ino)
	}
	unlock, err := f.ranges.lock(ctx, wholeFile)
	if err != nil {
		return err
	}
	defer unlock()
	c := f.hold()
	defer f.fs.store.Release(c)
	return c.Grow(size, time.Now())
}

// zero writes zeros over the part of r inside the file.
func (f *content) zero(ctx context.Context, r objcache.Range) error {
	c := f.hold()
	r = r.Intersect(objcache.Range{Len: c.Size()})
	f.fs.store.Release(c)
	zeros := make([]byte, min(r.Len, regionSize))
	for r.Len > 0 {
		n := min(r.Len, int64(len(zeros)))
		if err := f.write(ctx, zeros[:n], r.Off); err != nil {
			return err
		}
		r = objcache.Range{Off: r.Off + n, Len: r.Len - n}
	}
	return nil
}

// Lseek answers SEEK_DATA and SEEK_HOLE as for a file without holes, which POSIX allows.
func (fs *FS) Lseek(_ <-chan struct{}, in *fuse.LseekIn, out *fuse.LseekOut) fuse.Status {
	h, err := fs.handles.get(in.Fh)
	if err != nil {
		return status(err)
	}
	c := h.f.hold()
	defer fs.store.Release(c)
	size := uint64(c.Size())
	switch {
	case in.Whence != unix.SEEK_DATA && in.Whence != unix.SEEK_HOLE:
		return fuse.EINVAL
	case in.Offset >= size:
		return fuse.Status(syscall.ENXIO)
	case in.Whence == unix.SEEK_DATA:
		out.Offset = in.Offset
	default:
		out.Offset = size
	}
	return fuse.OK
}
