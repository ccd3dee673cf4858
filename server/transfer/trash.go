package transfer

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/failpoint"
	"github.com/objcache/objcache/server/external"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
	"github.com/objcache/objcache/server/ring"
)

// emptyTrash deletes the objects of names that a file no longer has.
func (t *Transfer) emptyTrash(ctx context.Context, ino objcache.Ino) error {
	return t.emptyTrashNow(ctx, ino, false)
}

// emptyTrashNow deletes even what another file's put is going to overwrite, if now is set.
func (t *Transfer) emptyTrashNow(ctx context.Context, ino objcache.Ino, now bool) error {
	in, err := meta.Inode(t.cfg.Group.DB(), ino)
	if err != nil || in == nil {
		return err
	}
	for in != nil && len(in.GetTrash()) > 0 {
		b := in.GetTrash()[0]
		if onlyCopy(in, b.GetKey()) {
			return objcache.Errorf(objcache.Conflict, "the object %q is the only copy of the bytes", b.GetKey())
		}
		if err := t.deleteObject(ctx, in, b, now); err != nil {
			return err
		}
		if in, err = meta.Inode(t.cfg.Group.DB(), ino); err != nil {
			return err
		}
	}
	return nil
}

// endDeletes carries the deletes of a file to their end that have the claim on their name, whatever else the file waits for: whoever has such a name now
// waits for the claim. While an upload has an intent, a claim is that one's.
func (t *Transfer) endDeletes(ctx context.Context, ino objcache.Ino) error {
	in, err := meta.Inode(t.cfg.Group.DB(), ino)
	if err != nil || in == nil || in.GetIntent() != nil {
		return err
	}
	for _, b := range in.GetTrash() {
		if onlyCopy(in, b.GetKey()) {
			continue
		}
		p, err := t.place(ctx, b.GetDir(), b.GetName(), ino)
		if k := objcache.KindOf(err); err != nil && (k == objcache.Stale || k == objcache.NotExist) {
			continue // the directory is finished, and with it the claim
		}
		if err != nil {
			return err
		}
		if !p.GetClaimed() {
			continue
		}
		if err := t.deleteObject(ctx, in, b, false); err != nil {
			return err
		}
		if in, err = meta.Inode(t.cfg.Group.DB(), ino); err != nil || in == nil {
			return err
		}
	}
	return nil
}

// deleteObject deletes one object that a file owes the deletion of, unless the name's new file is going to overwrite it, or has.
func (t *Transfer) deleteObject(ctx context.Context, in *record.Inode, b *record.Base, now bool) error {
	p, err := t.place(ctx, b.GetDir(), b.GetName(), objcache.Ino(in.GetIno()))
	if k := objcache.KindOf(err); err != nil && (k == objcache.Stale || k == objcache.NotExist) {
		return t.trashGone(ctx, in, b) // the directory is finished: nothing below it is left
	}
	if err != nil {
		return err
	}
	if theirs, err := t.theirs(ctx, in, b, p); err != nil {
		return err
	} else if theirs {
		return t.trashGone(ctx, in, b)
	}
	if other := p.GetChildNow(); other != 0 && other != in.GetIno() && p.GetPath() == b.GetKey() && !now && !p.GetClaimed() {
		o, err := t.inspect(ctx, other)
		if err != nil {
			return err
		}
		if o != nil && o.GetDir() == nil {
			return waitFor(other) // its put overwrites the object, unless this delete had begun: the put waits for its end
		}
	}
	if p.GetClaimed() && !t.persist.claimedHere(in, b) { // a delete of before a restart may still be on its way, and must not meet the name's next object
		if err := t.persist.quiet(t.now()); err != nil {
			return err
		}
	}
	claim := &rpc.Step{Step: &rpc.Step_ClaimEntry{ClaimEntry: &rpc.ClaimEntry{Dir: b.GetDir(), Name: b.GetName(), Ino: in.GetIno()}}}
	if err := t.transact(ctx, claim); err != nil {
		return err
	}
	t.persist.claim(in, b)
	failpoint.Hit(failpoint.TrashClaimed)
	// Until the claim was logged, the name's next file could put its object there. From now on it cannot.
	if p, err = t.place(ctx, b.GetDir(), b.GetName(), objcache.Ino(in.GetIno())); err != nil {
		return err
	}
	if theirs, err := t.theirs(ctx, in, b, p); err != nil {
		return err
	} else if theirs {
		return t.trashGone(ctx, in, b)
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
	failpoint.Hit(failpoint.TrashBefore)
	err = t.trashGone(ctx, in, b)
	failpoint.Hit(failpoint.TrashSettled)
	return err
}

// theirs reports whether what stands under a name is another file's by now. An ETag does not tell: files of the same bytes have the same. Who had the name
// later may owe for an object that it wrote before this one, so the object itself is asked then.
func (t *Transfer) theirs(ctx context.Context, in *record.Inode, b *record.Base, p *rpc.PathReply) (bool, error) {
	if slices.Contains(p.GetLaterKeys(), b.GetKey()) {
		if own, err := t.carriesIno(ctx, in, b.GetKey()); err != nil || !own {
			return true, err
		}
	}
	other := p.GetChildNow()
	if other == 0 || other == in.GetIno() {
		return false, nil
	}
	o, err := t.inspect(ctx, other)
	return stands(o, b), err
}

// carriesIno reports whether the object of a key says that it was written for an inode.
func (t *Transfer) carriesIno(ctx context.Context, in *record.Inode, key string) (bool, error) {
	store, err := t.store(in.GetBucket())
	if err != nil {
		return false, err
	}
	o, err := store.Head(ctx, key)
	if err != nil && objcache.KindOf(err) == objcache.NotExist {
		return false, nil
	}
	return o.Meta[metaIno] == strconv.FormatUint(in.GetIno(), 10), err
}

// stands reports whether a file's own object of a name stands where another's did.
func stands(in *record.Inode, b *record.Base) bool {
	return slices.ContainsFunc(in.GetLinks(), func(l *record.Link) bool {
		return l.GetDir() == b.GetDir() && l.GetName() == b.GetName() && l.GetKey() == b.GetKey()
	})
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

// trashGone notes that an object is gone; the name is settled with the last that the inode had there.
func (t *Transfer) trashGone(ctx context.Context, in *record.Inode, b *record.Base) error {
	more := slices.ContainsFunc(in.GetTrash(), func(o *record.Base) bool {
		return o.GetDir() == b.GetDir() && o.GetName() == b.GetName() && o.GetKey() != b.GetKey()
	})
	return t.transact(ctx,
		&rpc.Step{Step: &rpc.Step_EndPersist{EndPersist: &rpc.EndPersist{
			Ino: in.GetIno(), TrashGone: []string{b.GetKey()}, TrashName: &rpc.Name{Dir: b.GetDir(), Name: b.GetName()}, TrashLast: !more,
		}}},
		&rpc.Step{Step: &rpc.Step_SettleEntry{SettleEntry: &rpc.SettleEntry{Dir: b.GetDir(), Name: b.GetName(), Ino: in.GetIno(), Gone: true, Release: more}}})
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
