package chunk

import (
	"context"
	"errors"
	"hash/crc32"
	"io/fs"
	"slices"

	"github.com/objcache/objcache"
)

// Pace is asked before n bytes are read, n at most 64 KiB: it waits until they may be.
type Pace func(ctx context.Context, n int) error

// Verify reads a place as it is on the disk, past the page cache where the disk allows that, and compares checksums. Corrupt names the file and the offset in
// it; another error says that nothing is known.
func (s *Store) Verify(ctx context.Context, key objcache.ChunkKey, pl Place, pace Pace) error {
	if !pl.valid() {
		return objcache.Errorf(objcache.Invalid, "place %v of chunk %v", pl.Range(), key)
	}
	s.mu.Lock()
	f := s.mu.files[pl.File]
	s.mu.Unlock()
	if f == nil {
		return objcache.Errorf(objcache.Corrupt, "file %016x in %s, which holds bytes of chunk %v, is missing", pl.File, s.dir, key)
	}
	h, err := s.open(f, s.direct)
	switch {
	case h == nil && err == nil, errors.Is(err, fs.ErrNotExist):
		return objcache.Errorf(objcache.Corrupt, "file %016x in %s, which holds bytes of chunk %v, is missing", pl.File, s.dir, key)
	case err != nil:
		return diskError(err, "open", fileName(f.id, f.kind))
	}
	defer s.handles.release(h)
	for b := pl.Start / BlockSize; b*BlockSize < pl.Start+pl.Len; b++ {
		part := pl.blockPart(b)
		if err := pace(ctx, int(part.Len)); err != nil {
			return err
		}
		at := pl.Off + part.Off - pl.Start
		if !sameOnDisk(h, at, part.Len, pl.CRCs[b-pl.Start/BlockSize]) {
			return objcache.Errorf(objcache.Corrupt, "%s at offset %d, %d bytes of chunk %v", h.key.name, at, part.Len, key)
		}
	}
	return nil
}

// sameOnDisk reads whole pages around [at, at+n) of a file, as a direct handle demands, and compares the checksum.
func sameOnDisk(h *handle, at, n int64, sum uint32) bool {
	from := at / pageSize * pageSize
	buf := getBuffer(alignUp(at+n, pageSize) - from)
	defer putBuffer(buf)
	if got, _ := h.ReadAt(buf, from); int64(got) < at+n-from { // a file may end within a page
		return false
	}
	return crc32.Checksum(buf[at-from:][:n], castagnoli) == sum
}

// ScrubClean reads every clean block as it is on the disk and drops those that do not match their checksum: they are fetched again when somebody wants
// them. It returns how many bytes it read and how many blocks it dropped. It ends with ctx.
func (s *Store) ScrubClean(ctx context.Context, pace Pace) (read, dropped int64, err error) {
	s.mu.Lock()
	var all []*file
	for _, f := range s.mu.clean {
		all = append(all, f)
	}
	s.mu.Unlock()
	slices.SortFunc(all, func(a, b *file) int { return int(a.id) - int(b.id) })
	for _, f := range all {
		n, d, err := s.scrubFile(ctx, f, pace)
		read, dropped = read+n, dropped+d
		if err != nil {
			return read, dropped, err
		}
	}
	return read, dropped, nil
}

func (s *Store) scrubFile(ctx context.Context, f *file, pace Pace) (read, dropped int64, err error) {
	for b := range int64(blocksPerChunk) {
		part, sum, ok := s.presentBlock(f, b)
		if !ok {
			continue
		}
		if err := pace(ctx, int(part.Len)); err != nil {
			return read, dropped, err
		}
		h, err := s.open(f, s.direct)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return read, dropped, diskError(err, "open", f.name(s.dir))
		}
		if h == nil {
			return read, dropped, nil // evicted meanwhile
		}
		same := sameOnDisk(h, part.Off, part.Len, sum)
		s.handles.release(h)
		read += part.Len
		if now, again, ok := s.presentBlock(f, b); !same && ok && now == part && again == sum {
			s.dropBlock(f, b)
			dropped++
		}
	}
	return read, dropped, nil
}

// presentBlock returns the range and the checksum of a block of a clean file; false when it is not there.
func (s *Store) presentBlock(f *file, b int64) (objcache.Range, uint32, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.clean == nil || f.removing || !f.clean.present.has(b) {
		return objcache.Range{}, 0, false
	}
	return f.clean.part(b), f.clean.crcs[b], true
}
