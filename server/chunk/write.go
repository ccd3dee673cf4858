package chunk

import (
	"context"
	"errors"
	"syscall"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/failpoint"
)

// Write stores dirty bytes p at offset off of a chunk and says where; p stays the caller's. They are on disk only after a Sync that began after Write
// returned, and they count against the budget until Free. Bytes that nobody will name (a failed proposal) must be freed too.
// A run of at least 64 KiB at a multiple of 64 KiB that the chunk's dirty file never held is written in place; anything else is appended to the
// second-level log. NoSpace leaves the store as it was.
func (s *Store) Write(ctx context.Context, key objcache.ChunkKey, off int64, p []byte) (Place, error) {
	if len(p) == 0 || off < 0 || off+int64(len(p)) > objcache.ChunkSize {
		return Place{}, objcache.Errorf(objcache.Invalid, "write of %d bytes at %d of chunk %v", len(p), off, key)
	}
	if err := s.broken(); err != nil {
		return Place{}, err
	}
	for left := diskFullTries; ; left-- {
		pl, err := s.writeOnce(ctx, key, off, p)
		if left == 0 || !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
			return pl, err
		}
		s.budget.Disk(0) // others fill the disk: what is clean must go, or be waited for
	}
}

// diskFullTries is how often a write that finds the disk full waits for room as it would for a full budget.
const diskFullTries = 2

func (s *Store) writeOnce(ctx context.Context, key objcache.ChunkKey, off int64, p []byte) (Place, error) {
	f, at, err := s.reserve(ctx, key, off, int64(len(p)))
	if err != nil {
		return Place{}, err
	}
	pl := Place{File: f.id, Off: at, Start: off, Len: int64(len(p))}
	if err := s.put(f, at, p); err != nil {
		s.unreserve(f, at, pl.Len)
		return Place{}, err
	}
	pl.CRCs = checksums(off, p)
	s.wrote(f)
	return pl, nil
}

// reserve finds a place for n bytes that nobody else will write to, and counts it as live.
func (s *Store) reserve(ctx context.Context, key objcache.ChunkKey, off, n int64) (*file, int64, error) {
	if off%BlockSize == 0 && n >= BlockSize {
		f, err := s.reserveInPlace(ctx, key, off, n)
		if f != nil || err != nil {
			return f, off, err
		}
	}
	return s.reserveAppend(ctx, n)
}

// reserveInPlace returns nil when the range was allocated before.
func (s *Store) reserveInPlace(ctx context.Context, key objcache.ChunkKey, off, n int64) (*file, error) {
	from, to := off/BlockSize, (off+n+BlockSize-1)/BlockSize
	free, exists := s.inPlace(key, from, to)
	if !free {
		return nil, nil
	}
	cost := (to - from) * BlockSize
	if err := s.budget.takeDirty(ctx, cost); err != nil {
		return nil, err
	}
	var fresh uint64
	if !exists {
		id, err := s.newID()
		if err != nil {
			s.budget.giveDirty(cost)
			return nil, err
		}
		fresh = id
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.mu.started {
		s.budget.giveDirty(cost)
		return nil, objcache.Errorf(objcache.Unavailable, "chunk store %s has not started", s.dir)
	}
	f := s.mu.dirty[key]
	if f == nil && fresh == 0 { // it was removed meanwhile
		s.budget.giveDirty(cost)
		return nil, nil
	}
	if f == nil {
		f = &file{id: fresh, kind: chunkKind, key: key, live: map[int64]int64{}}
		s.mu.files[f.id], s.mu.dirty[key] = f, f
	}
	if f.alloc.any(from, to) { // somebody was faster
		s.budget.giveDirty(cost)
		return nil, nil
	}
	for b := from; b < to; b++ {
		f.alloc.set(b)
	}
	f.pending++
	s.addLiveLocked(f, off, n)
	return f, nil
}

// inPlace reports whether the blocks were never allocated, and whether the chunk has a dirty file.
func (s *Store) inPlace(key objcache.ChunkKey, from, to int64) (free, exists bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.mu.dirty[key]
	return f == nil || !f.alloc.any(from, to), f != nil
}

// directMin is the shortest write, in bytes, that goes past the page cache. Shorter ones gain more from being written back together by the round of Sync
// (128 KiB x 16 writers: twice the rate). Both kinds in one file are coherent because no two writes ever share a page.
const directMin = 256 << 10

// put writes p at a reserved position, padded with zeros to whole pages where the disk wants it.
func (s *Store) put(f *file, at int64, p []byte) error {
	name := f.name(s.dir)
	direct := s.direct && len(p) >= directMin
	h, err := s.handles.acquire(name, f.kind == chunkKind, direct)
	if err != nil {
		return diskError(err, "open", name)
	}
	defer s.handles.release(h)
	if f.kind == chunkKind {
		if err := h.Allocate(at, alignUp(int64(len(p)), BlockSize)); err != nil {
			return diskError(err, "allocate", name)
		}
	}
	before, after := failpoint.ChunkSegmentBefore, failpoint.ChunkSegmentAfter
	if f.kind == chunkKind {
		before, after = failpoint.ChunkInPlaceBefore, failpoint.ChunkInPlaceAfter
	}
	failpoint.Hit(before)
	if err := writeTo(h, p, at); err != nil {
		return diskError(err, "write", name)
	}
	failpoint.Hit(after)
	return nil
}

// writeTo writes p at a page's offset, to a direct handle padded with zeros to whole pages.
func writeTo(h *handle, p []byte, at int64) error {
	if aligned(p) || !h.key.direct {
		_, err := h.WriteAt(p, at)
		return err
	}
	b := getBuffer(alignUp(int64(len(p)), pageSize))
	defer putBuffer(b)
	clear(b[copy(b, p):])
	_, err := h.WriteAt(b, at)
	return err
}

// wrote ends a successful write: the next round of Sync covers it.
func (s *Store) wrote(f *file) {
	s.mu.Lock()
	f.pending--
	s.mu.Unlock()
	s.sync.add(f)
}

// unreserve takes a failed write back. What it left on disk was promised to nobody.
func (s *Store) unreserve(f *file, at, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.kind == chunkKind {
		from, to := at/BlockSize, (at+n+BlockSize-1)/BlockSize
		for b := from; b < to; b++ {
			f.alloc.clear(b)
		}
		s.budget.giveDirty((to - from) * BlockSize)
	}
	f.pending--
	s.dropLiveLocked(f, at)
}
