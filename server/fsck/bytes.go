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
	extentRotten   Code = "extent-rotten"         // the bytes on the disk are not those that were written
	placeTwice     Code = "place-twice"           // two extents lie on the same bytes of the disk
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
	for _, k := range s.chunkKeys() {
		c := s.chunks[k]
		if c.group != g.id {
			continue
		}
		xs := extents(c.Chunk)
		for _, id := range slices.Sorted(maps.Keys(xs)) {
			x := xs[id]
			if other, twice := named[id]; twice {
				s.twice(g, id, k, other)
			}
			named[id] = k
			if _, ok := g.places[id]; !ok && len(x.GetData()) == 0 {
				f := s.add(extentUnplaced, Error, g.id, k.Ino, "the bytes of extent %d of chunk %v are nowhere", id, k).inChunk(k)
				f.Extent, f.Bytes = id, x.GetVisibleLen()
			} else if what, rotten := g.disk.Rotten[id]; ok && rotten {
				f := s.add(extentRotten, Error, g.id, k.Ino, "%s", what).inChunk(k)
				f.Extent, f.Bytes = id, x.GetVisibleLen()
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
			f.Extent, f.Bytes = id, g.at[id].GetLen()
		}
	}
	s.placedTwice(g)
}

// twice says which of two chunks does not own the bytes: the other one keeps them.
func (s *state) twice(g *rows, id uint64, k, other objcache.ChunkKey) {
	if g.places[id] == k {
		k, other = other, k
	}
	s.add(extentTwice, Error, g.id, k.Ino, "extent %d is named by chunks %v and %v", id, other, k).inChunk(k).by(meta.ChunkKey(other)).Extent = id
}

func (s *state) chunkKeys() []objcache.ChunkKey {
	return slices.SortedFunc(maps.Keys(s.chunks), func(a, b objcache.ChunkKey) int {
		return cmp.Or(cmp.Compare(a.Ino, b.Ino), cmp.Compare(a.Index, b.Index))
	})
}

// placedTwice wants every byte of the disk to be of one extent.
func (s *state) placedTwice(g *rows) {
	ids := slices.SortedFunc(maps.Keys(g.at), func(a, b uint64) int {
		x, y := g.at[a], g.at[b]
		return cmp.Or(cmp.Compare(x.GetFile(), y.GetFile()), cmp.Compare(x.GetOff(), y.GetOff()), cmp.Compare(a, b))
	})
	for i := 1; i < len(ids); i++ {
		a, b := g.at[ids[i-1]], g.at[ids[i]]
		if a.GetFile() == b.GetFile() && a.GetOff()+a.GetLen() > b.GetOff() {
			k := g.places[ids[i]]
			f := s.add(placeTwice, Error, g.id, k.Ino, "extents %d and %d lie on the same bytes of file %016x", ids[i-1], ids[i], b.GetFile()).inChunk(k)
			f.Extent = ids[i]
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
	for _, k := range s.chunkKeys() {
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
