package chunk

import (
	"context"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/failpoint"
)

// Piece is the part [Off, Off+Len) of the chunk that shows from a place.
type Piece struct {
	Place Place
	Off   int64 // in the chunk
	Len   int64
}

func (p Piece) rng() objcache.Range { return objcache.Range{Off: p.Off, Len: p.Len} }

// Adopt makes the dirty bytes of a persisted chunk its clean content under tag; pieces do not overlap, and size is where the file ends in this chunk.
// When they are all of one dirty file it becomes the clean file as it is, not evictable before its places are freed and durable; otherwise whole blocks
// are copied. What the pieces do not cover is absent. The places stay valid until they are freed. NoSpace means only that less is cached.
func (s *Store) Adopt(key objcache.ChunkKey, tag string, pieces []Piece, size int64) error {
	if size < 0 || size > objcache.ChunkSize || len(tag) > maxTag {
		return objcache.Errorf(objcache.Invalid, "adopting %d bytes of chunk %v", size, key)
	}
	failpoint.Hit(failpoint.ChunkAdoptBefore)
	if !s.adoptWhole(key, tag, pieces, size) {
		return s.adoptCopy(key, tag, pieces, size)
	}
	failpoint.Hit(failpoint.ChunkAdoptAfter)
	return nil
}

// adoptWhole turns the dirty file into the clean one.
func (s *Store) adoptWhole(key objcache.ChunkKey, tag string, pieces []Piece, size int64) bool {
	s.mu.Lock()
	f := s.mu.dirty[key]
	if f == nil || f.pending > 0 || f.clean != nil || !f.consistsOf(pieces, size) {
		s.mu.Unlock()
		return false
	}
	old := s.mu.clean[key]
	drop := old != nil && s.dropCleanLocked(old)
	delete(s.mu.dirty, key)
	for _, n := range f.live {
		s.countLiveLocked(f, -n)
	}
	f.adopted = true
	f.clean = adoptedState(tag, pieces, size)
	blocks := f.alloc.count() * BlockSize
	f.clean.taken = blocks + pageSize
	s.mu.clean[key] = f
	s.mu.usage.Clean += f.clean.taken
	s.budget.toClean(blocks, f.clean.taken)
	s.budget.enter(s, f)
	s.mu.Unlock()
	if drop {
		s.remove(old)
	}
	s.saveTrailer(f)
	return true
}

// consistsOf reports whether the pieces are all of the file's live places, whole, in place, and end on a block's or the file's end.
func (f *file) consistsOf(pieces []Piece, size int64) bool {
	if len(pieces) != len(f.live) {
		return false
	}
	for _, p := range pieces {
		if p.Place.File != f.id || p.rng() != p.Place.Range() || f.live[p.Place.Off] != p.Len {
			return false
		}
		if end := p.rng().End(); end > size || end%BlockSize != 0 && end != size {
			return false
		}
	}
	return true
}

func adoptedState(tag string, pieces []Piece, size int64) *cleanState {
	c := &cleanState{tag: tag, short: -1, unsaved: 1}
	for _, p := range pieces {
		for i, sum := range p.Place.CRCs {
			b := p.Off/BlockSize + int64(i)
			c.present.set(b)
			c.crcs[b] = sum
		}
		if end := p.rng().End(); end%BlockSize != 0 {
			c.short, c.shortLen = end/BlockSize, end%BlockSize
		}
	}
	return c
}

// adoptCopy fills a clean file with the blocks that the pieces cover.
func (s *Store) adoptCopy(key objcache.ChunkKey, tag string, pieces []Piece, size int64) error {
	const most = 16 * BlockSize
	buf := getBuffer(most)
	defer putBuffer(buf)
	for off := int64(0); off < size; {
		n := int64(0)
		for off+n < size && n < most {
			block := objcache.Range{Off: off + n, Len: min(BlockSize, size-off-n)}
			ok, err := s.assemble(key, pieces, block, buf[n:n+block.Len])
			if err != nil {
				return err
			}
			if !ok {
				break
			}
			n += block.Len
		}
		if n == 0 {
			off += BlockSize
			continue
		}
		if err := s.Fill(key, tag, off, buf[:n]); err != nil {
			return err
		}
		off += n
	}
	return nil
}

// assemble reads a block from the pieces; false when they do not cover it.
func (s *Store) assemble(key objcache.ChunkKey, pieces []Piece, block objcache.Range, p []byte) (bool, error) {
	var covered int64
	for _, piece := range pieces {
		covered += piece.rng().Intersect(block).Len
	}
	if covered < block.Len {
		return false, nil
	}
	for _, piece := range pieces {
		part := piece.rng().Intersect(block)
		if part.Len == 0 {
			continue
		}
		if err := s.Read(context.Background(), key, piece.Place, part.Off, p[part.Off-block.Off:][:part.Len]); err != nil {
			return false, err
		}
	}
	return true, nil
}
