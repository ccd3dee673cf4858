package chunk

import (
	"context"
	"errors"
	"hash/crc32"
	"io/fs"

	"github.com/objcache/objcache"
)

// open returns a handle of f; nil without an error when it is being removed.
func (s *Store) open(f *file, direct bool) (*handle, error) {
	s.mu.Lock()
	gone := f.removing
	s.mu.Unlock()
	if gone {
		return nil, nil
	}
	h, err := s.handles.acquire(f.name(s.dir), false, direct)
	s.mu.Lock()
	gone = f.removing
	s.mu.Unlock()
	if gone && h != nil { // do not keep the space of a removed file
		s.handles.release(h)
		s.handles.forget(h.key.name)
	}
	if gone {
		return nil, nil
	}
	return h, err
}

// Read fills p with the chunk's bytes from offset off, all of which must lie in the place. It verifies every block that it touches;
// bytes that are missing or do not match are Corrupt, and the error names the file and the offset in it.
func (s *Store) Read(_ context.Context, key objcache.ChunkKey, pl Place, off int64, p []byte) error {
	want := objcache.Range{Off: off, Len: int64(len(p))}
	if !pl.valid() || off < pl.Start || want.End() > pl.Start+pl.Len {
		return objcache.Errorf(objcache.Invalid, "read of %v from place %v of chunk %v", want, pl.Range(), key)
	}
	s.mu.Lock()
	f := s.mu.files[pl.File]
	s.mu.Unlock()
	var h *handle
	var err error
	if f != nil {
		h, err = s.open(f, false)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return diskError(err, "open", fileName(f.id, f.kind))
	}
	if h == nil {
		return objcache.Errorf(objcache.Corrupt, "file %016x in %s, which holds bytes of chunk %v, is missing", pl.File, s.dir, key)
	}
	defer s.handles.release(h)
	for b := off / BlockSize; b*BlockSize < want.End(); b++ {
		part := pl.blockPart(b)
		sum := pl.CRCs[b-pl.Start/BlockSize]
		if !readBlock(h, part, pl.Off+part.Off-pl.Start, sum, want, p) {
			return objcache.Errorf(objcache.Corrupt, "%s at offset %d, %d bytes of chunk %v", h.key.name, pl.Off+part.Off-pl.Start, part.Len, key)
		}
	}
	return nil
}

// readBlock reads the bytes part of a chunk, which lie at offset at of a file, verifies them, and copies those that are wanted to their place in
// p. It reports whether they are all there and match.
func readBlock(h *handle, part objcache.Range, at int64, sum uint32, want objcache.Range, p []byte) bool {
	both := part.Intersect(want)
	dst := p[both.Off-want.Off:][:both.Len]
	buf := dst
	if both != part {
		buf = getBuffer(part.Len)
		defer putBuffer(buf)
	}
	if n, _ := h.ReadAt(buf, at); n < len(buf) { // a short read says the same whatever its error
		return false
	}
	if crc32.Checksum(buf, castagnoli) != sum {
		return false
	}
	if both != part {
		copy(dst, buf[both.Off-part.Off:])
	}
	return true
}
