package cache

import (
	"errors"
	"hash/crc32"
	"io"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/objcache/objcache"
)

var scratch = sync.Pool{New: func() any { b := make([]byte, BlockSize); return &b }}

// AbsentError says that bytes asked for are not on this node.
type AbsentError struct{ Range objcache.Range }

func (e *AbsentError) Error() string { return "not in the node-local cache" }

// ReadAt reads bytes that are here and checks them against their checksums. It is short (n < len(p), nil) only at the end of the file.
// *AbsentError: fetch first. Corrupt: the bytes rotted; a clean block is dropped, so a fetch brings it back.
func (f *File) ReadAt(p []byte, off int64) (int, error) {
	f.io.RLock()
	defer f.io.RUnlock()
	f.mu.Lock()
	size := f.mu.size
	missing := f.missingLocked(objcache.Range{Off: off, Len: int64(len(p))})
	f.mu.Unlock()
	if len(missing) > 0 {
		return 0, &AbsentError{missing[0]}
	}
	if off >= size {
		return 0, nil
	}
	p = p[:min(int64(len(p)), size-off)]
	want := objcache.Range{Off: off, Len: int64(len(p))}
	for i := off / BlockSize; i < blockCount(want.End()); i++ {
		b := blockRange(i, size)
		part := b.Intersect(want)
		if err := f.readBlock(i, b, part, p[part.Off-off:part.End()-off]); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// readBlock reads part of block i into p. The caller holds io shared.
func (f *File) readBlock(i int64, b, part objcache.Range, p []byte) error {
	f.mu.Lock()
	present, known := f.mu.blocks.present.has(i), f.mu.blocks.known.has(i)
	var sum uint32
	if known {
		sum = f.mu.blocks.crc[i]
	}
	f.mu.Unlock()
	if !present {
		return f.readRaw(p, part.Off)
	}
	whole := p
	if part != b {
		s := scratch.Get().(*[]byte)
		defer scratch.Put(s)
		whole = (*s)[:b.Len]
	}
	if err := f.readRaw(whole, b.Off); err != nil {
		return err
	}
	got := crc32.Checksum(whole, castagnoli)
	if known && got != sum {
		return f.rotted(i, b)
	}
	if !known {
		f.mu.Lock()
		f.mu.blocks.setCRC(i, got)
		f.mu.Unlock()
	}
	if part != b {
		copy(p, whole[part.Off-b.Off:])
	}
	return nil
}

// readRaw reads len(p) bytes without a check; what lies behind the end of the local file is zeros.
func (f *File) readRaw(p []byte, off int64) error {
	n, err := f.disk.ReadAt(p, off)
	if errors.Is(err, io.EOF) {
		clear(p[n:])
		err = nil
	}
	if err != nil {
		return objcache.Errorf(objcache.IO, "read %s at %d: %w", f.path, off, err)
	}
	return nil
}

func (f *File) rotted(i int64, b objcache.Range) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.mu.dirty.Within(b)) == 0 && len(f.mu.staged.Within(b)) == 0 {
		f.mu.blocks.drop(i)
	}
	return objcache.Errorf(objcache.Corrupt, "block %d of %s", i, f.path)
}

// Raw reads this node's own writes for a flush: offsets of the file, no presence check; a checksum that is known is still checked.
func (f *File) Raw() io.ReaderAt { return rawReader{f} }

type rawReader struct{ f *File }

func (r rawReader) ReadAt(p []byte, off int64) (int, error) {
	n, err := r.f.ReadAt(p, off)
	if err != nil {
		if absent := (*AbsentError)(nil); !errors.As(err, &absent) {
			return 0, err
		}
		r.f.io.RLock()
		defer r.f.io.RUnlock()
		return len(p), r.f.readRaw(p, off)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Fill stores fetched bytes of the given version from off, which is the start of a block; it ends at the end of a block or of the version.
// Blocks that are present stay as they are, and so does everything written here. Bytes of another version are ignored.
func (f *File) Fill(version uint64, off int64, p []byte) error {
	f.io.Lock()
	defer f.io.Unlock()
	f.mu.Lock()
	defer f.store.account(f)
	defer f.mu.Unlock()
	if f.mu.version != version {
		return nil
	}
	for len(p) > 0 && off < f.mu.size {
		i := off / BlockSize
		b := blockRange(i, f.mu.size)
		n := min(b.Len, int64(len(p)))
		if err := f.fillBlockLocked(i, b, p[:n]); err != nil {
			return err
		}
		off, p = off+BlockSize, p[n:]
	}
	return nil
}

func (f *File) fillBlockLocked(i int64, b objcache.Range, p []byte) error {
	if f.mu.blocks.present.has(i) {
		return nil
	}
	r := objcache.Range{Off: b.Off, Len: int64(len(p))}
	free := f.mu.dirty.Outside(r)
	pure := len(free) == 1 && free[0] == r
	for _, g := range free {
		for _, h := range f.mu.staged.Outside(g) {
			pure = pure && h == r
			if _, err := f.disk.write(p[h.Off-r.Off:h.End()-r.Off], h.Off); err != nil {
				return diskError(err, "fill %s", f.path)
			}
		}
		if len(f.mu.staged.Within(g)) > 0 {
			pure = false
		}
	}
	f.mu.blocks.setPresent(i)
	if pure && r.Len == b.Len {
		f.mu.blocks.setCRC(i, crc32.Checksum(p, castagnoli))
	}
	return nil
}

func diskError(err error, format string, args ...any) error {
	if isErrno(err, unix.ENOSPC) || isErrno(err, unix.EDQUOT) {
		return objcache.Errorf(objcache.NoSpace, format+": %w", append(args, err)...)
	}
	return objcache.Errorf(objcache.IO, format+": %w", append(args, err)...)
}
