package meta

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/record"
)

// beginPersist notes on the inode that one of its names is being written to external storage (DESIGN §10, INTENT). Sent again with an
// upload id it is BEGIN.
func (e *Eval) beginPersist(s *rpc.BeginPersist) error {
	in, err := Inode(e.b, objcache.Ino(s.GetIno()))
	if err != nil {
		return err
	}
	it := &record.Intent{}
	if err := decode(s.GetIntent(), it); err != nil {
		return err
	}
	switch {
	case in == nil:
		return objcache.Errorf(objcache.NotExist, "inode %d", s.GetIno())
	case in.GetIntent() != nil && !proto.Equal(in.GetIntent().GetTx(), it.GetTx()):
		return objcache.Errorf(objcache.Conflict, "inode %d is being persisted", s.GetIno())
	case in.GetIntent() == nil && in.GetVersion() != s.GetVersion():
		return objcache.Errorf(objcache.Conflict, "inode %d is at version %d, not %d", s.GetIno(), in.GetVersion(), s.GetVersion())
	}
	if in.GetIntent() != nil {
		it.LowestCut = in.GetIntent().GetLowestCut()
	}
	in.Intent = it
	return e.putOwing(in, it.GetStarted())
}

// endPersist notes what became of it (DONE), and which of the objects that had to go are gone.
func (e *Eval) endPersist(s *rpc.EndPersist) error {
	in, err := Inode(e.b, objcache.Ino(s.GetIno()))
	if err != nil || in == nil {
		return err
	}
	for _, key := range s.GetTrashGone() {
		in.Trash = slices.DeleteFunc(in.Trash, func(b *record.Base) bool {
			return b.GetKey() == key && b.GetDir() == s.GetTrashName().GetDir() && b.GetName() == s.GetTrashName().GetName()
		})
	}
	if n := s.GetTrashName(); s.GetTrashLast() && LeftOf(in, &record.Link{Dir: n.GetDir(), Name: n.GetName()}) != nil {
		return objcache.Errorf(objcache.Conflict, "inode %d has lost the name %q in directory %d again", s.GetIno(), n.GetName(), n.GetDir())
	}
	if s.GetAttributes() {
		in.AttrDirty = in.GetAttrDirty() && in.GetCtime() > s.GetAsOf()
		return e.putOwing(in, max(in.GetDirtySince(), 1))
	}
	it := in.GetIntent()
	if !s.GetMore() && s.GetVersion() > 0 { // deletes and markers say nothing about an upload
		in.Intent = nil
	}
	if s.GetDone() && it != nil {
		if err := e.written(in, it, s); err != nil {
			return err
		}
	}
	if s.GetDropLinks() {
		if err := dropLinks(in); err != nil {
			return err
		}
	}
	if in.GetDir() != nil {
		if err := e.endPersistDir(in, s); err != nil {
			return err
		}
	}
	settleLinks(in)
	return e.putOwing(in, max(in.GetDirtySince(), 1))
}

func (e *Eval) written(in *record.Inode, it *record.Intent, s *rpc.EndPersist) error {
	link, base := &record.Link{}, &record.Base{}
	if err := decode(s.GetLink(), link); err != nil {
		return err
	}
	if err := decode(s.GetBase(), base); err != nil {
		return err
	}
	if cut := it.GetLowestCut(); cut > 0 {
		base.Length = min(base.GetLength(), int64(cut)-1)
	}
	in.Base = base
	i := slices.IndexFunc(in.Links, func(l *record.Link) bool { return l.GetDir() == link.GetDir() && l.GetName() == link.GetName() })
	switch {
	case i >= 0:
		link.Version = s.GetVersion()
		if old := in.GetLinks()[i]; old.GetKey() != "" && old.GetKey() != link.GetKey() {
			in.Trash = append(in.Trash, &record.Base{Key: old.GetKey(), Etag: old.GetEtag(), Dir: old.GetDir(), Name: old.GetName()})
		}
		in.Links[i] = link
		in.Trash = slices.DeleteFunc(in.Trash, func(b *record.Base) bool { return b.GetKey() == link.GetKey() })
	case !slices.ContainsFunc(in.GetTrash(), func(b *record.Base) bool { return b.GetKey() == link.GetKey() && b.GetTx() == base.GetTx() }):
		// renamed or removed meanwhile: the object just written has no name any more
		in.Trash = append(in.Trash, &record.Base{Key: link.GetKey(), Etag: link.GetEtag(), Dir: link.GetDir(), Name: link.GetName(), Tx: base.GetTx()})
	}
	if in.GetVersion() != s.GetVersion() {
		return nil
	}
	in.Dirty = slices.ContainsFunc(in.GetLinks(), func(l *record.Link) bool { return l.GetKey() == "" || l.GetVersion() != in.GetVersion() })
	in.ChunkVersions, in.CutVersions = nil, nil // external storage has them all
	if in.GetAttrDirty() && it.GetStarted() >= in.GetCtime() {
		in.AttrDirty = false
	}
	return nil
}

// pinChunk keeps a version of a chunk's extents for an upload. A chunk without any gets a pin too: whoever uploads must be able to tell "nothing of
// its own" from "not pinned yet".
func (e *Eval) pinChunk(s *rpc.PinChunk) error {
	k := objcache.ChunkKey{Ino: objcache.Ino(s.GetIno()), Index: s.GetChunk()}
	c, err := Chunk(e.b, k)
	if err != nil {
		return err
	}
	if c == nil {
		c = &record.Chunk{}
	}
	if c.GetVersion() > s.GetVersion() {
		return objcache.Errorf(objcache.Conflict, "chunk %v is at version %d, not %d", k, c.GetVersion(), s.GetVersion())
	}
	if slices.ContainsFunc(c.Pins, func(p *record.Pin) bool { return p.GetVersion() == s.GetVersion() }) {
		return nil
	}
	c.Pins = append(c.Pins, &record.Pin{Version: s.GetVersion(), Extents: c.GetExtents()})
	return e.Put(ChunkKey(k), c)
}

// unpinChunk lets go of them; after a finished upload the bytes are clean unless they have changed since.
func (e *Eval) unpinChunk(s *rpc.UnpinChunk) error {
	k := objcache.ChunkKey{Ino: objcache.Ino(s.GetIno()), Index: s.GetChunk()}
	c, err := Chunk(e.b, k)
	if err != nil || c == nil {
		return err
	}
	before := names(c)
	i := slices.IndexFunc(c.Pins, func(p *record.Pin) bool { return p.GetVersion() == s.GetVersion() })
	if i < 0 {
		return nil
	}
	pin := c.GetPins()[i]
	c.Pins = slices.Delete(c.Pins, i, i+1)
	if s.GetDone() && c.GetVersion() <= s.GetVersion() {
		e.cleaned = append(e.cleaned, &record.Cleaned{
			Ino: s.GetIno(), Chunk: s.GetChunk(), Etag: s.GetEtag(), Extents: pin.GetExtents(), Len: s.GetLen(),
		})
		c.Extents, c.Dirty = nil, false
	}
	e.dropUnnamed(k, before, c)
	if c.GetVersion() == 0 && len(c.GetPins()) == 0 {
		return e.Delete(ChunkKey(k)) // nothing was ever committed to it
	}
	return e.Put(ChunkKey(k), c)
}

// claimEntry takes the right to change the object under a name. Only the inode that has the name, or one that owes for it, may ask.
func (e *Eval) claimEntry(s *rpc.ClaimEntry) error {
	row, err := Entry(e.b, objcache.Ino(s.GetDir()), s.GetName())
	if err != nil {
		return err
	}
	owes := slices.ContainsFunc(row.GetDebts(), func(d *record.Debt) bool { return d.GetIno() == s.GetIno() })
	switch {
	case row.GetIno() != s.GetIno() && !owes:
		return objcache.Errorf(objcache.Conflict, "name %q in directory %d is not inode %d's", s.GetName(), s.GetDir(), s.GetIno())
	case row.GetBusy() != 0 && row.GetBusy() != s.GetIno():
		return objcache.Errorf(objcache.Conflict, "the object of %q in directory %d is being changed for inode %d", s.GetName(), s.GetDir(), row.GetBusy())
	}
	row.Busy = s.GetIno()
	return e.Put(EntryKey(objcache.Ino(s.GetDir()), s.GetName()), row)
}
