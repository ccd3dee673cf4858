package cache

import (
	"errors"
	"hash/crc32"
	"time"

	"golang.org/x/sys/unix"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/failpoint"
)

func isErrno(err error, e unix.Errno) bool { return errors.Is(err, e) }

// Write stores p at off as bytes that no flush has committed. When it returns nil they outlive this process. After an error a beginning of them may be
// there, and is flushed as well.
func (f *File) Write(p []byte, off int64, mtime time.Time) error {
	f.io.Lock()
	defer f.io.Unlock()
	failpoint.Hit(failpoint.CacheWriteBefore)
	n, err := f.disk.write(p, off)
	failpoint.Hit(failpoint.CacheWriteAfter)
	if err != nil {
		err = diskError(err, "write %s", f.path)
	}
	if n == 0 && len(p) > 0 {
		return err
	}
	return errors.Join(err, f.wrote(p[:n], off, mtime))
}

// wrote notes that p has been written at off. The caller holds io.
func (f *File) wrote(p []byte, off int64, mtime time.Time) error {
	r := objcache.Range{Off: off, Len: int64(len(p))}
	f.mu.Lock()
	defer f.store.account(f)
	defer f.mu.Unlock()
	f.growLocked(r.End())
	f.summedLocked(p, r)
	f.mu.staged = f.mu.staged.Remove(r)
	f.mu.dirty = f.mu.dirty.Add(r)
	f.mu.mtime, f.mu.changed = mtime, mtime
	return f.recordLocked(r)
}

// summedLocked updates presence and checksums of the blocks that p, written to r, touches.
func (f *File) summedLocked(p []byte, r objcache.Range) {
	for i := r.Off / BlockSize; i < blockCount(r.End()); i++ {
		b := blockRange(i, f.mu.size)
		part := b.Intersect(r)
		if part != b {
			f.mu.blocks.known.clear(i)
			continue
		}
		f.mu.blocks.setPresent(i)
		f.mu.blocks.setCRC(i, crc32.Checksum(p[b.Off-r.Off:b.End()-r.Off], castagnoli))
	}
}

// recordLocked puts r into the sidecar.
func (f *File) recordLocked(r objcache.Range) error {
	if err := f.sidecarLocked(); err != nil {
		return err
	}
	s := f.mu.side
	s.put(atSize, uint64(f.mu.size))
	s.put(atMtime, uint64(f.mu.mtime.UnixNano()))
	if s.add(r) {
		failpoint.Hit(failpoint.CacheNoted)
		return nil
	}
	return f.replaceSidecarLocked(f.uncommittedLocked())
}

func (f *File) replaceSidecarLocked(want Ranges) error {
	f.ownSidecar.Store(true)
	var n *sidecar
	err := f.store.roomFor(func() (err error) {
		n, err = f.mu.side.replaced(want)
		return err
	})
	if err != nil {
		return diskError(err, "write the sidecar of %s", f.path)
	}
	f.mu.side = n
	return nil
}

func (f *File) sidecarLocked() error {
	if f.mu.side != nil {
		return nil
	}
	var s *sidecar
	err := f.store.roomFor(func() (err error) {
		s, err = f.store.slots.take(f.path, f.ino, f.seq)
		return err
	})
	if err != nil {
		return diskError(err, "create the sidecar of %s", f.path)
	}
	s.put(atVersion, f.mu.version)
	s.setName(f.mu.dir, f.mu.name)
	f.mu.side = s
	return nil
}

func (f *File) uncommittedLocked() Ranges {
	all := f.mu.dirty.Clone()
	for _, r := range f.mu.staged {
		all = all.Add(r)
	}
	return all
}

// SetPlace remembers where the file was opened, for a conflict found after a crash.
func (f *File) SetPlace(dir objcache.Ino, name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.dir, f.mu.name = dir, name
	if f.mu.side != nil {
		f.mu.side.setName(dir, name)
	}
}

// Grow extends the file with zeros that a flush is due for; it never makes it shorter.
func (f *File) Grow(size int64, mtime time.Time) error {
	f.io.Lock()
	defer f.io.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if size <= f.mu.size {
		return nil
	}
	if _, err := f.disk.open(); err != nil { // a sidecar without a file says nothing to the next process
		return diskError(err, "extend %s", f.path)
	}
	if err := f.disk.truncate(size); err != nil {
		return diskError(err, "extend %s", f.path)
	}
	old := f.mu.size
	f.growLocked(size)
	f.mu.grown, f.mu.mtime, f.mu.changed = true, mtime, mtime
	// An empty range at the end makes the sidecar remember the size.
	return f.recordLocked(objcache.Range{Off: old, Len: 0})
}

// Pending is what a flush would commit.
type Pending struct {
	Dirty, Staged Ranges
	Grown         bool
	Size          int64
	Mtime         time.Time
	Changed       time.Time // of the last write; Mtime is what utimensat(2) made of it
}

// Due reports whether there is anything to commit.
func (p Pending) Due() bool { return len(p.Dirty) > 0 || len(p.Staged) > 0 || p.Grown }

// Pending returns what no flush has committed yet.
func (f *File) Pending() Pending {
	f.mu.Lock()
	defer f.mu.Unlock()
	return Pending{f.mu.dirty.Clone(), f.mu.staged.Clone(), f.mu.grown, f.mu.size, f.mu.mtime, f.mu.changed}
}

// SetMtime makes the next flush carry t, as utimensat(2) between write and close asks.
func (f *File) SetMtime(t time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.mtime = t
	if f.mu.side != nil {
		f.mu.side.put(atMtime, uint64(t.UnixNano()))
	}
}

// Staged notes that the owners have the bytes of r, which did not change meanwhile.
func (f *File) Staged(r objcache.Range) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range f.mu.dirty.Within(r) {
		f.mu.staged = f.mu.staged.Add(d)
	}
	f.mu.dirty = f.mu.dirty.Remove(r)
}

// Commit notes that everything pending is in the given version, made on top of the version this file held, and of that size.
func (f *File) Commit(version uint64, size int64) {
	f.io.Lock()
	defer f.io.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.dirty, f.mu.staged, f.mu.grown = nil, nil, false
	switch s := f.mu.side; {
	case s == nil:
	case s.slots != nil:
		s.drop()
		f.mu.side = nil
	default:
		s.clear()
		s.put(atVersion, version)
	}
	f.mu.version = version
	_ = f.disk.truncate(max(size, f.mu.size)) // a hole at the end must be there for passthrough readers
	f.growLocked(size)
}

// Resize notes that the committed size changed to size, in the given version, made on top of the version this file held. What was pending behind it is gone.
func (f *File) Resize(version uint64, size int64) error {
	f.io.Lock()
	defer f.io.Unlock()
	f.mu.Lock()
	defer f.store.account(f)
	defer f.mu.Unlock()
	if err := f.cutLocked(size); err != nil {
		return err
	}
	f.mu.version, f.mu.grown = version, false
	if s := f.mu.side; s != nil {
		if len(f.mu.dirty) == 0 && len(f.mu.staged) == 0 {
			s.clear() // nothing is pending, not even a size
		}
		s.put(atSize, uint64(size))
		s.put(atVersion, version)
	}
	return nil
}

func (f *File) cutLocked(size int64) error {
	if err := f.disk.truncate(size); err != nil {
		return diskError(err, "truncate %s", f.path)
	}
	if size >= f.mu.size {
		f.growLocked(size)
		return nil
	}
	f.mu.blocks.cut(blockCount(size))
	if size%BlockSize != 0 {
		f.mu.blocks.known.clear(size / BlockSize)
	}
	behind := objcache.Range{Off: size, Len: f.mu.size - size}
	f.mu.dirty, f.mu.staged = f.mu.dirty.Remove(behind), f.mu.staged.Remove(behind)
	f.mu.size = size
	if f.mu.side == nil {
		return nil
	}
	f.mu.side.put(atSize, uint64(size))
	rest := f.uncommittedLocked()
	if len(rest) == 0 {
		f.mu.side.clear()
		return nil
	}
	return f.replaceSidecarLocked(rest)
}

// carry copies what is pending in old into f, a file of a newer version: what this node wrote stays on top.
func (f *File) carry(old *File) error {
	p := old.Pending()
	old.mu.Lock()
	f.mu.dir, f.mu.name = old.mu.dir, old.mu.name
	old.mu.Unlock()
	buf := make([]byte, 1<<20)
	for _, r := range append(p.Dirty, p.Staged...) {
		for r.Len > 0 {
			n := min(r.Len, int64(len(buf)))
			if _, err := old.Raw().ReadAt(buf[:n], r.Off); err != nil {
				return err
			}
			if err := f.Write(buf[:n], r.Off, p.Changed); err != nil {
				return err
			}
			r = objcache.Range{Off: r.Off + n, Len: r.Len - n}
		}
	}
	if p.Grown {
		if err := f.Grow(p.Size, p.Changed); err != nil {
			return err
		}
	}
	if p.Due() {
		f.SetMtime(p.Mtime)
	}
	return nil
}

// Appended stores bytes that the cluster has committed at the end of this file, which had nothing pending, as the given version.
func (f *File) Appended(p []byte, off int64, version uint64) error {
	f.io.Lock()
	defer f.io.Unlock()
	if _, err := f.disk.write(p, off); err != nil {
		return diskError(err, "append to %s", f.path)
	}
	f.mu.Lock()
	defer f.store.account(f)
	defer f.mu.Unlock()
	r := objcache.Range{Off: off, Len: int64(len(p))}
	f.growLocked(r.End())
	f.summedLocked(p, r)
	f.mu.version = version
	if f.mu.side != nil {
		f.mu.side.put(atVersion, version)
	}
	return nil
}
