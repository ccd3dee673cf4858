package transfer

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/external"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
	"github.com/objcache/objcache/server/ring"
)

// emptyTrash deletes the objects of names that an inode no longer has.
func (t *Transfer) emptyTrash(ctx context.Context, ino objcache.Ino) error {
	in, err := meta.Inode(t.cfg.Group.DB(), ino)
	if err != nil || in == nil {
		return err
	}
	for _, b := range in.GetTrash() {
		if in.GetDir() == nil && onlyCopy(in, b.GetKey()) {
			return errWait // the only copy of the bytes
		}
		if err := t.deleteObject(ctx, in, b); err != nil {
			return err
		}
	}
	return nil
}

// deleteObject deletes one object that an inode owes the deletion of, unless the name's new inode is going to overwrite it or somebody else has.
func (t *Transfer) deleteObject(ctx context.Context, in *record.Inode, b *record.Base) error {
	p, err := t.place(ctx, b.GetDir(), b.GetName(), objcache.Ino(in.GetIno()))
	if k := objcache.KindOf(err); err != nil && (k == objcache.Stale || k == objcache.NotExist) {
		return t.trashGone(ctx, in, b, nil) // the directory is finished: nothing below it is left
	}
	if err != nil {
		return err
	}
	gone := &rpc.Step{Step: &rpc.Step_SettleEntry{SettleEntry: &rpc.SettleEntry{Dir: b.GetDir(), Name: b.GetName(), Ino: in.GetIno(), Gone: true}}}
	switch {
	case p.GetChildNow() == in.GetIno(): // moved with its directory: the name is still this inode's, under another key
	case !p.GetOwes():
		return t.trashGone(ctx, in, b, nil) // absorbed by the put of the name's new inode
	case p.GetChildNow() != 0 && in.GetDir() == nil:
		now, err := t.inspect(ctx, p.GetChildNow())
		if err != nil {
			return err
		}
		if now.GetDir() == nil {
			return errWait // its put overwrites the object
		}
	}
	claim := &rpc.Step{Step: &rpc.Step_ClaimEntry{ClaimEntry: &rpc.ClaimEntry{Dir: b.GetDir(), Name: b.GetName(), Ino: in.GetIno()}}}
	if err := t.transact(ctx, claim); err != nil {
		return err
	}
	if err := t.keepParent(ctx, b, p); err != nil {
		return err
	}
	store, err := t.store(in.GetBucket())
	if err != nil {
		return err
	}
	if b.GetKey() != "" {
		if err := t.deleteIfKnown(ctx, store, in, b); err != nil {
			return err
		}
	}
	if in.GetDir() != nil && t.cfg.Prefix != "" {
		if err := store.Delete(ctx, t.tableKey(b.GetKey())); err != nil {
			return err
		}
	}
	return t.trashGone(ctx, in, b, gone)
}

// deleteIfKnown deletes an object if it still is the one that we know.
func (t *Transfer) deleteIfKnown(ctx context.Context, store external.Store, in *record.Inode, b *record.Base) error {
	o, err := store.Head(ctx, b.GetKey())
	switch {
	case objcache.KindOf(err) == objcache.NotExist && err != nil:
		return nil
	case err != nil:
		return err
	case b.GetEtag() != "" && !wroteIt(in, b.GetKey(), o.ETag):
		t.cfg.Logger.Warn("object changed in external storage before it was deleted: left alone", "key", b.GetKey(), "ino", in.GetIno())
		return nil
	}
	return store.Delete(ctx, b.GetKey())
}

// wroteIt reports whether one of an inode's known objects under a key has this ETag: an upload whose outcome was unknown for a while leaves two in the
// trash, and the one that stands there is the later.
func wroteIt(in *record.Inode, key, etag string) bool {
	return slices.ContainsFunc(in.GetTrash(), func(b *record.Base) bool { return b.GetKey() == key && b.GetEtag() == etag }) ||
		in.GetBase().GetKey() == key && in.GetBase().GetEtag() == etag
}

func (t *Transfer) trashGone(ctx context.Context, in *record.Inode, b *record.Base, settle *rpc.Step) error {
	steps := []*rpc.Step{{Step: &rpc.Step_EndPersist{EndPersist: &rpc.EndPersist{Ino: in.GetIno(), TrashGone: []string{b.GetKey()}}}}}
	if settle != nil {
		steps = append(steps, settle)
	}
	return t.transact(ctx, steps...)
}

// keepParent writes the marker of a directory that only its objects imply, before the last of them is deleted.
func (t *Transfer) keepParent(ctx context.Context, b *record.Base, p *rpc.PathReply) error {
	if p.GetMarker() || p.GetChildren() > 0 || objcache.Ino(b.GetDir()) == meta.BucketIno(p.GetBucket()) {
		return nil
	}
	_, err := t.cfg.Peers.Call(ctx, ring.HashInode(objcache.Ino(b.GetDir())), &rpc.Request{
		Op: &rpc.Request_Persist{Persist: &rpc.PersistRequest{Ino: b.GetDir(), Marker: true}},
	})
	if errors.Is(err, objcache.Stale) || errors.Is(err, objcache.NotExist) {
		return nil
	}
	return err
}

// finishDeadFile deletes the objects of a file without a name and forgets it.
func (t *Transfer) finishDeadFile(ctx context.Context, in *record.Inode) error {
	if err := t.emptyTrash(ctx, objcache.Ino(in.GetIno())); err != nil {
		return err
	}
	var steps []*rpc.Step
	if n := chunks(in); n > 0 || in.GetGeneration() > 0 {
		steps = t.dropChunks(in)
	}
	return t.transact(ctx, append(steps, &rpc.Step{Step: &rpc.Step_Forget{Forget: &rpc.Forget{Ino: in.GetIno()}}})...)
}

// dropChunks makes every group forget what it holds of a dead file. Its size may have been larger once, so all are asked.
func (t *Transfer) dropChunks(in *record.Inode) []*rpc.Step {
	var steps []*rpc.Step
	for _, m := range t.cfg.View().Members {
		steps = append(steps, &rpc.Step{Step: &rpc.Step_CutChunks{CutChunks: &rpc.CutChunks{
			Ino: in.GetIno(), OldSize: in.GetSize(), Group: uint32(m.Group),
		}}})
	}
	return steps
}

// finishDeadDir ends a removed directory once nothing below it is owed any more.
func (t *Transfer) finishDeadDir(ctx context.Context, in *record.Inode) error {
	if err := t.nothingOwedIn(ctx, in); err != nil {
		return err
	}
	if err := t.emptyTrash(ctx, objcache.Ino(in.GetIno())); err != nil {
		return err
	}
	l := in.GetLinks()[0]
	marker := &record.Base{Dir: l.GetDir(), Name: l.GetName()}
	if in.GetDir().GetMarker() || in.GetDirty() {
		marker.Key = in.GetDir().GetPrefix()
	}
	if err := t.deleteObject(ctx, in, marker); err != nil {
		return err
	}
	return t.transact(ctx, &rpc.Step{Step: &rpc.Step_Forget{Forget: &rpc.Forget{Ino: in.GetIno()}}})
}

// nothingOwedIn has those who left a directory, or died in it, take their objects away from below its key; errWait as long as some have not.
func (t *Transfer) nothingOwedIn(ctx context.Context, dir *record.Inode) error {
	var debtors []uint64
	err := meta.ScanEntries(t.cfg.Group.DB(), objcache.Ino(dir.GetIno()), "", func(_ string, row *record.DirEntry) (bool, error) {
		for _, d := range row.GetDebts() {
			debtors = append(debtors, d.GetIno())
		}
		return true, nil
	})
	if err != nil || len(debtors) == 0 {
		return err
	}
	for _, d := range debtors {
		if err := t.persistElsewhere(ctx, d); err != nil && !errors.Is(err, objcache.Stale) {
			return err
		}
	}
	return errWait
}

// persistDir writes a directory's marker, and moves everything below a renamed one.
func (t *Transfer) persistDir(ctx context.Context, in *record.Inode) error {
	l := in.GetLinks()[0]
	if l.GetDir() == uint64(objcache.RootIno) { // a bucket: it has a table, and nothing else of its own
		if in.GetAttrDirty() {
			if err := t.transact(ctx, attributesGone(in)); err != nil {
				return err
			}
		}
		return t.writeTable(ctx, in, "")
	}
	p, err := t.place(ctx, l.GetDir(), l.GetName(), objcache.Ino(in.GetIno()))
	if err != nil {
		return err
	}
	if len(p.GetBlockedBy()) > 0 {
		return t.unblock(ctx, p.GetBlockedBy())
	}
	key := p.GetPath() + "/"
	moved := in.GetDir().GetMoving() || in.GetDir().GetPrefix() != key
	if moved {
		if err := t.moveChildren(ctx, in); err != nil {
			return err
		}
		if err := t.nothingOwedIn(ctx, in); err != nil {
			return err
		}
	}
	switch {
	case in.GetDirty() || moved || in.GetAttrDirty() && t.cfg.Prefix == "":
		if err := t.WriteMarker(ctx, in, key, moved); err != nil {
			return err
		}
		if err := t.settleAttributes(ctx, in); err != nil {
			return err
		}
	case in.GetAttrDirty():
		if err := t.settleAttributes(ctx, in); err != nil {
			return err
		}
	}
	if err := t.writeTable(ctx, in, key); err != nil {
		return err
	}
	return t.emptyTrash(ctx, objcache.Ino(in.GetIno()))
}

// WriteMarker writes the object that stands for a directory.
func (t *Transfer) WriteMarker(ctx context.Context, in *record.Inode, key string, moved bool) error {
	store, err := t.store(in.GetBucket())
	if err != nil {
		return err
	}
	if _, err := store.Put(ctx, key, bytes.NewReader(nil), metadata(in, nil), external.Condition{}); err != nil {
		return err
	}
	return t.transact(ctx, &rpc.Step{Step: &rpc.Step_EndPersist{EndPersist: &rpc.EndPersist{Ino: in.GetIno(), Marker: key, Moved: moved}}})
}

// Mark writes the marker of a directory that has none, where it stands now.
func (t *Transfer) Mark(ctx context.Context, ino objcache.Ino) error {
	in, err := meta.Inode(t.cfg.Group.DB(), ino)
	if err != nil || in == nil || in.GetDead() || in.GetDir().GetMarker() || in.GetDir().GetMoving() {
		return err
	}
	path, _, err := t.path(ctx, ino)
	if err != nil {
		return err
	}
	return t.WriteMarker(ctx, in, path+"/", false)
}

// moveChildren moves the objects below a renamed directory to their new keys, one file after the other; each move is complete in itself.
func (t *Transfer) moveChildren(ctx context.Context, in *record.Inode) error {
	if !in.GetDir().GetComplete() {
		if err := t.begin(in).wait(ctx); err != nil {
			return err
		}
	}
	var children []uint64
	err := meta.ScanEntries(t.cfg.Group.DB(), objcache.Ino(in.GetIno()), "", func(_ string, row *record.DirEntry) (bool, error) {
		if row.GetIno() != 0 {
			children = append(children, row.GetIno())
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	for _, c := range children {
		if err := t.persistElsewhere(ctx, c); err != nil {
			return err
		}
	}
	return nil
}
