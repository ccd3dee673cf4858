package chunk

import (
	"container/list"
	"errors"
	"io/fs"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/failpoint"
)

// maxTag is the longest tag in bytes: it must fit into the trailer.
const maxTag = 1024

// cleanState is what is known of a clean file. Guarded by Store.mu, but ref by Budget.mu.
type cleanState struct {
	tag      string
	present  bitmap
	filling  bitmap // being written by a Fill
	crcs     [blocksPerChunk]uint32
	short    int64 // the block at the file's end that is not whole, -1 when none is known
	shortLen int64
	taken    int64 // bytes of the budget
	unsaved  int64 // blocks that the trailer on disk does not know
	saving   bool
	ref      *list.Element
}

// part is the range of the chunk that present block b holds.
func (c *cleanState) part(b int64) objcache.Range {
	if b == c.short {
		return objcache.Range{Off: b * BlockSize, Len: c.shortLen}
	}
	return objcache.Range{Off: b * BlockSize, Len: BlockSize}
}

// complete reports whether every byte of [off, off+n) is present.
func (c *cleanState) complete(want objcache.Range) bool {
	for b := want.Off / BlockSize; b*BlockSize < want.End(); b++ {
		if !c.present.has(b) || c.part(b).End() < min(want.End(), (b+1)*BlockSize) {
			return false
		}
	}
	return true
}

// ReadClean fills p from the chunk's clean bytes of that tag, from offset off. It reports false when not all of them are there; a block that does not match
// its checksum is not there any more. An error is of the disk.
func (s *Store) ReadClean(key objcache.ChunkKey, tag string, off int64, p []byte) (bool, error) {
	want := objcache.Range{Off: off, Len: int64(len(p))}
	if off < 0 || want.End() > objcache.ChunkSize {
		return false, objcache.Errorf(objcache.Invalid, "read of %v of chunk %v", want, key)
	}
	s.mu.Lock()
	f := s.mu.clean[key]
	if f == nil || f.clean.tag != tag || !f.clean.complete(want) {
		s.mu.Unlock()
		return false, nil
	}
	seen := *f.clean
	s.mu.Unlock()
	f.used.Store(true)
	h, err := s.open(f, false)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, diskError(err, "open", f.name(s.dir))
	}
	if h == nil {
		return false, nil
	}
	defer s.handles.release(h)
	for b := off / BlockSize; b*BlockSize < want.End(); b++ {
		part := seen.part(b)
		if !readBlock(h, part, part.Off, seen.crcs[b], want, p) {
			s.dropBlock(f, b)
			return false, nil
		}
	}
	return true, nil
}

// dropBlock forgets a block of a clean file that rotted.
func (s *Store) dropBlock(f *file, b int64) {
	s.corrupt.Add(1)
	s.log.Warn("a clean block does not match its checksum", "file", f.name(s.dir), "offset", b*BlockSize, "chunk", f.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.clean == nil || f.removing || !f.clean.present.has(b) {
		return
	}
	f.clean.present.clear(b)
	f.clean.taken -= BlockSize
	s.mu.usage.Clean -= BlockSize
	s.budget.giveClean(BlockSize)
}

// Missing returns the ranges that [off, off+n) needs and the clean file of that tag lacks, in whole blocks of 64 KiB and in order.
func (s *Store) Missing(key objcache.ChunkKey, tag string, off, n int64) []objcache.Range {
	want := objcache.Range{Off: off, Len: n}.Intersect(objcache.Range{Len: objcache.ChunkSize})
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.mu.clean[key]
	var out []objcache.Range
	for b := want.Off / BlockSize; want.Len > 0 && b*BlockSize < want.End(); b++ {
		block := objcache.Range{Off: b * BlockSize, Len: BlockSize}
		switch last := len(out) - 1; {
		case f != nil && f.clean.tag == tag && f.clean.complete(block.Intersect(want)):
		case last >= 0 && out[last].End() == block.Off:
			out[last].Len += BlockSize
		default:
			out = append(out, block)
		}
	}
	return out
}

// Fill caches clean bytes p at offset off, a multiple of 64 KiB, under the tag; p is whole blocks except at the end of the file. Nothing is durable. Another
// tag's bytes of that chunk are dropped. NoSpace means only that they are not cached.
func (s *Store) Fill(key objcache.ChunkKey, tag string, off int64, p []byte) error {
	if off < 0 || off%BlockSize != 0 || len(p) == 0 || off+int64(len(p)) > objcache.ChunkSize || len(tag) > maxTag {
		return objcache.Errorf(objcache.Invalid, "fill of %d bytes at %d of chunk %v", len(p), off, key)
	}
	f, err := s.cleanFile(key, tag)
	if err != nil {
		return err
	}
	for len(p) > 0 {
		run := s.claim(f, off, p)
		if run > 0 {
			if err := s.fillRun(f, off, p[:run]); err != nil {
				return err
			}
		} else {
			run = min(int64(len(p)), BlockSize) // present already
		}
		off, p = off+run, p[run:]
	}
	if s.trailerDue(f) {
		s.saveTrailer(f)
	}
	return nil
}

// cleanFile returns the clean file of the tag and makes it if need be.
func (s *Store) cleanFile(key objcache.ChunkKey, tag string) (*file, error) {
	s.mu.Lock()
	started, f := s.mu.started, s.mu.clean[key]
	s.mu.Unlock()
	if !started {
		return nil, objcache.Errorf(objcache.Unavailable, "chunk store %s has not started", s.dir)
	}
	if f != nil && f.clean.tag == tag { // the tag never changes
		return f, nil
	}
	id, err := s.newID()
	if err != nil {
		return nil, err
	}
	if !s.budget.takeClean(pageSize) {
		return nil, objcache.Errorf(objcache.NoSpace, "caching chunk %v", key)
	}
	f = &file{id: id, kind: chunkKind, key: key, live: map[int64]int64{}, adopted: true, clean: &cleanState{tag: tag, short: -1, taken: pageSize}}
	h, err := s.handles.acquire(f.name(s.dir), true, false)
	if err != nil {
		s.budget.giveClean(pageSize)
		return nil, diskError(err, "create", f.name(s.dir))
	}
	s.handles.release(h)
	if first := s.attachClean(f); first != f {
		s.budget.giveClean(pageSize)
		return first, s.discard(f)
	}
	return f, nil
}

// discard removes a file that was made but never attached.
func (s *Store) discard(f *file) error {
	s.handles.forget(f.name(s.dir))
	if err := s.fs.Remove(f.name(s.dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return diskError(err, "remove", f.name(s.dir))
	}
	return nil
}

// attachClean makes f the chunk's clean file in place of one of another tag and returns it. A file of the same tag that somebody else attached
// meanwhile stays and is returned instead: it may have bytes already.
func (s *Store) attachClean(f *file) *file {
	s.mu.Lock()
	old := s.mu.clean[f.key]
	if old != nil && old.clean.tag == f.clean.tag {
		s.mu.Unlock()
		return old
	}
	drop := old != nil && s.dropCleanLocked(old)
	s.mu.files[f.id], s.mu.clean[f.key] = f, f
	s.mu.usage.Clean += f.clean.taken
	s.budget.enter(s, f)
	s.mu.Unlock()
	if drop {
		s.remove(old)
	}
	return f
}

// dropCleanLocked takes a clean file out of the cache. When it reports true the caller removes it; otherwise metadata may name its bytes,
// which stay until it does not.
func (s *Store) dropCleanLocked(f *file) bool {
	if f.clean == nil || f.removing {
		return false
	}
	if s.mu.clean[f.key] == f {
		delete(s.mu.clean, f.key)
	}
	s.budget.leave(f)
	if s.mu.started && !f.held() {
		f.removing = true
		return true
	}
	s.mu.usage.Clean -= f.clean.taken
	s.budget.giveClean(f.clean.taken)
	if s.mu.started {
		s.budget.forceDirty(f.alloc.count() * BlockSize)
	}
	f.clean = nil
	return false
}

// DropClean forgets the chunk's clean bytes.
func (s *Store) DropClean(key objcache.ChunkKey) {
	s.mu.Lock()
	f := s.mu.clean[key]
	drop := f != nil && s.dropCleanLocked(f)
	s.mu.Unlock()
	if drop {
		s.remove(f)
	}
}

// claim marks the leading blocks of p that are absent as being filled and returns their length in bytes.
func (s *Store) claim(f *file, off int64, p []byte) (run int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := f.clean
	if c == nil || f.removing {
		return 0
	}
	for run < int64(len(p)) {
		b := (off + run) / BlockSize
		if c.present.has(b) || c.filling.has(b) {
			break
		}
		c.filling.set(b)
		run += min(BlockSize, int64(len(p))-run)
	}
	return run
}

// fillRun writes claimed blocks and then shows them to readers.
func (s *Store) fillRun(f *file, off int64, p []byte) error {
	cost := alignUp(int64(len(p)), BlockSize)
	if !s.budget.takeClean(cost) {
		s.endFill(f, off, p, false)
		return objcache.Errorf(objcache.NoSpace, "caching chunk %v", f.key)
	}
	h, err := s.open(f, s.direct && len(p) >= directMin)
	if h != nil {
		failpoint.Hit(failpoint.ChunkFillBefore)
		err = writeTo(h, p, off)
		failpoint.Hit(failpoint.ChunkFillAfter)
		s.handles.release(h)
	}
	if h == nil || err != nil || !s.endFill(f, off, p, true) {
		s.budget.giveClean(cost)
	}
	if err != nil {
		s.endFill(f, off, p, false)
		return diskError(err, "write", f.name(s.dir))
	}
	return nil
}

// endFill ends a claim; it reports false when the file was dropped meanwhile.
func (s *Store) endFill(f *file, off int64, p []byte, ok bool) bool {
	sums := checksums(off, p)
	s.mu.Lock()
	defer s.mu.Unlock()
	c := f.clean
	if c == nil || f.removing {
		return false
	}
	for i, sum := range sums {
		b := off/BlockSize + int64(i)
		c.filling.clear(b)
		if !ok {
			continue
		}
		c.present.set(b)
		c.crcs[b] = sum
		c.taken += BlockSize
		c.unsaved++
		s.mu.usage.Clean += BlockSize
		if n := int64(len(p)) - int64(i)*BlockSize; n < BlockSize {
			c.short, c.shortLen = b, n
		}
	}
	return true
}
