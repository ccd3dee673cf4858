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
		in.Trash = slices.DeleteFunc(in.Trash, func(b *record.Base) bool { return b.GetKey() == key })
	}
	it := in.GetIntent()
	in.Intent = nil
	if s.GetDone() {
		if err := e.written(in, it, s); err != nil {
			return err
		}
	}
	if d := in.GetDir(); d != nil {
		if s.GetMoved() {
			d.Moving = false
		}
		if s.GetMarker() {
			d.Marker = true
			in.Dirty, in.AttrDirty = false, false
		}
	}
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
		in.Links[i] = link
	default: // renamed or removed meanwhile: the object just written has no name any more
		in.Trash = append(in.Trash, &record.Base{Key: link.GetKey(), Etag: link.GetEtag(), Dir: link.GetDir(), Name: link.GetName(), Tx: base.GetTx()})
	}
	if in.GetVersion() != s.GetVersion() {
		return nil
	}
	in.Dirty = slices.ContainsFunc(in.GetLinks(), func(l *record.Link) bool { return l.GetKey() == "" || l.GetVersion() != in.GetVersion() })
	if in.GetAttrDirty() && it.GetStarted() >= in.GetCtime() {
		in.AttrDirty = false
	}
	return nil
}

// pinChunk keeps a version of a chunk's extents for an upload.
func (e *Eval) pinChunk(s *rpc.PinChunk) error {
	k := objcache.ChunkKey{Ino: objcache.Ino(s.GetIno()), Index: s.GetChunk()}
	c, err := Chunk(e.b, k)
	if err != nil || c == nil {
		return err
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
		e.clean = append(e.clean, Cleaned{Key: k, ETag: s.GetEtag(), Extents: pin.GetExtents(), Len: s.GetLen()})
		c.Extents, c.Dirty = nil, false
	}
	e.dropUnnamed(k, before, c)
	return e.Put(ChunkKey(k), c)
}

// acquireKey takes the right to change an object, or notes that an inode's only copy is there (hold).
func (e *Eval) acquireKey(s *rpc.AcquireKey) error {
	key := KeyRowKey(s.GetBucket(), s.GetKey())
	row := &record.KeyRow{}
	if _, err := Get(e.b, key, row); err != nil {
		return err
	}
	row.Bucket, row.Key = s.GetBucket(), s.GetKey()
	if s.GetHold() {
		if !slices.Contains(row.GetHolds(), s.GetIno()) {
			row.Holds = append(row.Holds, s.GetIno())
		}
		return e.Put(key, row)
	}
	for _, h := range row.GetHolds() {
		if h != s.GetIno() {
			return HeldBy(s.GetKey(), h)
		}
	}
	if row.GetIntent() != 0 && row.GetIntent() != s.GetIno() {
		return objcache.Errorf(objcache.Conflict, "object %q is being changed for inode %d", s.GetKey(), row.GetIntent())
	}
	row.Intent = s.GetIno()
	return e.Put(key, row)
}

func (e *Eval) releaseKey(s *rpc.ReleaseKey) error {
	key := KeyRowKey(s.GetBucket(), s.GetKey())
	row := &record.KeyRow{}
	ok, err := Get(e.b, key, row)
	if err != nil || !ok {
		return err
	}
	if s.GetHold() {
		row.Holds = slices.DeleteFunc(row.Holds, func(h uint64) bool { return h == s.GetIno() })
	} else if row.GetIntent() == s.GetIno() {
		row.Intent = 0
	}
	if row.GetIntent() == 0 && len(row.GetHolds()) == 0 {
		return e.Delete(key)
	}
	return e.Put(key, row)
}

// HeldError is a Conflict: the object of a key is the only copy of an inode's bytes.
type HeldError struct {
	Key string
	By  objcache.Ino
	error
}

// Unwrap makes it a Conflict.
func (h *HeldError) Unwrap() error { return h.error }

// HeldBy builds a HeldError.
func HeldBy(key string, by uint64) error {
	return &HeldError{key, objcache.Ino(by), objcache.Errorf(objcache.Conflict, "object %q is the only copy of inode %d", key, by)}
}
