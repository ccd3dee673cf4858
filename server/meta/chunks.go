package meta

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/record"
)

// Overlay lays a new extent over those of a chunk and returns the visible parts, ordered and disjoint. Parts of one extent share its id.
func Overlay(old []*record.Extent, n *record.Extent) []*record.Extent {
	lo, hi := n.GetVisibleOff(), n.GetVisibleOff()+n.GetVisibleLen()
	out := make([]*record.Extent, 0, len(old)+2)
	for _, x := range old {
		xlo, xhi := x.GetVisibleOff(), x.GetVisibleOff()+x.GetVisibleLen()
		if xhi <= lo || xlo >= hi {
			out = append(out, x)
			continue
		}
		if xlo < lo {
			out = append(out, part(x, xlo, lo))
		}
		if xhi > hi {
			out = append(out, part(x, hi, xhi))
		}
	}
	out = append(out, n)
	slices.SortFunc(out, func(a, b *record.Extent) int { return int(a.GetVisibleOff() - b.GetVisibleOff()) })
	return out
}

func part(x *record.Extent, lo, hi int64) *record.Extent {
	p := proto.CloneOf(x)
	p.VisibleOff, p.VisibleLen = lo, hi-lo
	return p
}

// Cut returns the visible parts before an offset in the chunk.
func Cut(old []*record.Extent, at int64) []*record.Extent {
	var out []*record.Extent
	for _, x := range old {
		switch {
		case x.GetVisibleOff()+x.GetVisibleLen() <= at:
			out = append(out, x)
		case x.GetVisibleOff() < at:
			out = append(out, part(x, x.GetVisibleOff(), at))
		}
	}
	return out
}

// commitChunk makes staged bytes visible.
func (e *Eval) commitChunk(s *rpc.CommitChunk) error {
	k := objcache.ChunkKey{Ino: objcache.Ino(s.GetIno()), Index: s.GetChunk()}
	c, err := e.chunk(k)
	if err != nil {
		return err
	}
	before := names(c)
	for _, b := range s.GetExtents() {
		x := &record.Extent{}
		if err := decode(b, x); err != nil {
			return err
		}
		x.Version = s.GetVersion()
		c.Extents = Overlay(c.GetExtents(), x)
	}
	if s.GetSeq() > 0 {
		staged, placed, ok := e.facts.Staged(objcache.ClientID(s.GetClient()), k, s.GetFirst(), s.GetSeq())
		if !ok {
			return objcache.Errorf(objcache.StageLost, "chunk %v: staged writes %d to %d of client %x", k, s.GetFirst(), s.GetSeq(), s.GetClient())
		}
		for _, x := range staged {
			x = proto.CloneOf(x)
			x.Version = s.GetVersion()
			c.Extents = Overlay(c.GetExtents(), x)
		}
		e.placed = append(e.placed, placed...)
	}
	for _, w := range s.GetInline() {
		if w.GetOff() < 0 || w.GetOff()+int64(len(w.GetData())) > objcache.ChunkSize || len(w.GetData()) > objcache.InlineSize {
			return objcache.Errorf(objcache.Invalid, "inline write of %d bytes at %d of chunk %v", len(w.GetData()), w.GetOff(), k)
		}
		c.Extents = Overlay(c.GetExtents(), &record.Extent{
			Id: e.facts.NextExtent(), Start: w.GetOff(), Len: int64(len(w.GetData())), Data: w.GetData(),
			VisibleOff: w.GetOff(), VisibleLen: int64(len(w.GetData())), Version: s.GetVersion(),
		})
	}
	c.Version, c.Dirty = s.GetVersion(), true
	e.dropUnnamed(k, before, c)
	// An extent that the same transaction already covered whole never becomes visible.
	e.dropCovered(k, c)
	return e.Put(ChunkKey(k), c)
}

func (e *Eval) dropCovered(k objcache.ChunkKey, c *record.Chunk) {
	now := names(c)
	for _, p := range e.placed {
		if p.GetIno() == uint64(k.Ino) && p.GetChunk() == k.Index && now[p.GetId()] == nil {
			e.dropped = append(e.dropped, &record.Dropped{Id: p.GetId(), Ino: p.GetIno(), Chunk: p.GetChunk()})
		}
	}
}

func (e *Eval) chunk(k objcache.ChunkKey) (*record.Chunk, error) {
	c, err := Chunk(e.b, k)
	if err != nil {
		return nil, err
	}
	if c == nil {
		c = &record.Chunk{}
	}
	return c, nil
}

// names lists the extents that a chunk's current content or a pin needs.
func names(c *record.Chunk) map[uint64]*record.Extent {
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

func (e *Eval) dropUnnamed(k objcache.ChunkKey, before map[uint64]*record.Extent, c *record.Chunk) {
	now := names(c)
	var gone []uint64
	for id, x := range before {
		if now[id] == nil && len(x.GetData()) == 0 {
			gone = append(gone, id)
		}
	}
	slices.Sort(gone)
	for _, id := range gone {
		e.dropped = append(e.dropped, &record.Dropped{Id: id, Ino: uint64(k.Ino), Chunk: k.Index})
	}
}

// dropChunk forgets everything committed of a chunk.
func (e *Eval) dropChunk(k objcache.ChunkKey) error {
	c, err := Chunk(e.b, k)
	if err != nil || c == nil {
		return err
	}
	e.dropUnnamed(k, names(c), &record.Chunk{})
	return e.Delete(ChunkKey(k))
}

// cutChunks drops what lies behind a truncation, in all chunks of the file that this group owns.
func (e *Eval) cutChunks(s *rpc.CutChunks) error {
	last := objcache.ChunkOf(max(s.GetOldSize()-1, 0))
	for i := objcache.ChunkOf(s.GetCut()); i <= last; i++ {
		k := objcache.ChunkKey{Ino: objcache.Ino(s.GetIno()), Index: i}
		if !e.facts.Owns(k) {
			continue
		}
		if s.GetCut() == 0 && s.GetVersion() == 0 {
			if err := e.dropChunk(k); err != nil {
				return err
			}
			continue
		}
		c, err := Chunk(e.b, k)
		if err != nil {
			return err
		}
		if c == nil {
			continue
		}
		before := names(c)
		c.Extents = Cut(c.GetExtents(), max(0, s.GetCut()-k.Offset()))
		c.Version = s.GetVersion()
		e.dropUnnamed(k, before, c)
		if err := e.Put(ChunkKey(k), c); err != nil {
			return err
		}
	}
	return nil
}
