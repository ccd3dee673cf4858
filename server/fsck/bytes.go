package fsck

import (
	"cmp"
	"maps"
	"slices"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
)

// Codes of bytes.
const (
	extentUnplaced Code = "extent-without-place"  // the bytes are nowhere
	extentTwice    Code = "extent-twice"          // two chunks name the same bytes
	extentOverlap  Code = "extent-overlap"        // a byte of a chunk has two sources
	extentRange    Code = "extent-range"          // an extent shows bytes that it does not hold
	placeLeft      Code = "place-without-extent"  // bytes take room that nothing names
	chunkOrphaned  Code = "chunk-without-inode"   // a chunk's file is gone
	chunkLeft      Code = "chunk-row-left"        // the same without bytes: a file that was longer once leaves such rows
	chunkNewer     Code = "chunk-newer-than-file" // a chunk has a version that its file never had
	chunkDirty     Code = "chunk-dirty"           // a clean file has bytes that are not in external storage; without extents the mark means nothing
)

// places looks at each group's disk.
func (s *state) places() {
	for _, g := range s.groups {
		s.placed(g)
	}
}

// placed compares the extents that a group's chunks name with those that have a place on its disk.
func (s *state) placed(g *rows) {
	named := map[uint64]objcache.ChunkKey{}
	for k, c := range s.chunks {
		if c.group != g.id {
			continue
		}
		for id, x := range extents(c.Chunk) {
			if other, twice := named[id]; twice {
				s.add(extentTwice, Error, g.id, k.Ino, "extent %d is named by chunks %v and %v", id, other, k).inChunk(k).by(meta.ChunkKey(other))
			}
			named[id] = k
			if _, ok := g.places[id]; !ok && len(x.GetData()) == 0 {
				s.add(extentUnplaced, Error, g.id, k.Ino, "the bytes of extent %d of chunk %v are nowhere", id, k).inChunk(k)
			}
		}
	}
	for _, p := range s.promises {
		for _, pl := range p.GetPlaced() {
			named[pl.GetId()] = objcache.ChunkKey{}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(g.places)) {
		if _, ok := named[id]; !ok {
			k := g.places[id]
			f := s.add(placeLeft, Warning, g.id, k.Ino, "the bytes of extent %d of chunk %v are kept for nothing", id, k).inChunk(k)
			f.Extent = id
		}
	}
}

// extents are those that a chunk's content or a pin names, by id.
func extents(c *record.Chunk) map[uint64]*record.Extent {
	m := map[uint64]*record.Extent{}
	for _, x := range c.GetExtents() {
		m[x.GetId()] = x
	}
	for _, p := range c.GetPins() {
		for _, x := range p.GetExtents() {
			m[x.GetId()] = x
		}
	}
	return m
}

// bytes checks each chunk by itself and against its file.
func (s *state) bytes() {
	keys := slices.SortedFunc(maps.Keys(s.chunks), func(a, b objcache.ChunkKey) int {
		return cmp.Or(cmp.Compare(a.Ino, b.Ino), cmp.Compare(a.Index, b.Index))
	})
	for _, k := range keys {
		c := s.chunks[k]
		s.layout(k, c, c.GetExtents())
		for _, p := range c.GetPins() {
			s.layout(k, c, p.GetExtents())
		}
		switch in := s.inodes[k.Ino]; {
		case in == nil && len(extents(c.Chunk)) == 0:
			s.add(chunkLeft, Warning, c.group, k.Ino, "chunk %v has a row and no file", k)
		case in == nil:
			s.add(chunkOrphaned, Warning, c.group, k.Ino, "chunk %v has %d extents and no file", k, len(c.GetExtents())).inChunk(k)
		case c.GetVersion() > in.GetVersion():
			s.add(chunkNewer, Error, c.group, k.Ino, "chunk %v is at version %d, its file at %d", k, c.GetVersion(), in.GetVersion()).inChunk(k)
		case c.GetDirty() && len(c.GetExtents()) > 0 && !in.GetDirty() && !in.GetDead() && !in.GetOrphan() && in.GetIntent() == nil:
			s.add(chunkDirty, Error, c.group, k.Ino, "chunk %v is dirty, its file is clean", k).inChunk(k)
		}
	}
}

// layout wants extents in order, disjoint, and inside of what they hold.
func (s *state) layout(k objcache.ChunkKey, c *chunk, xs []*record.Extent) {
	end := int64(0)
	for _, x := range xs {
		lo, hi := x.GetVisibleOff(), x.GetVisibleOff()+x.GetVisibleLen()
		if lo < end {
			s.add(extentOverlap, Error, c.group, k.Ino, "extent %d of chunk %v begins at %d, before %d", x.GetId(), k, lo, end).inChunk(k)
		}
		if end = hi; lo < x.GetStart() || hi > x.GetStart()+x.GetLen() || hi > objcache.ChunkSize || lo >= hi {
			s.add(extentRange, Error, c.group, k.Ino, "extent %d of chunk %v shows %d to %d of %d to %d", x.GetId(), k, lo, hi, x.GetStart(),
				x.GetStart()+x.GetLen()).inChunk(k)
		}
	}
}
