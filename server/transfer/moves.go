package transfer

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/failpoint"
	"github.com/objcache/objcache/server/external"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
	"github.com/objcache/objcache/server/ring"
)

// persistDir writes a directory's marker and table. One that moved arrives first, with everything below it, and then settles what it owes for the
// names that it had: only then may another directory stand there.
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
	key := in.GetDir().GetDetour()
	if key == "" {
		p, err := t.place(ctx, l.GetDir(), l.GetName(), objcache.Ino(in.GetIno()))
		if err != nil {
			return err
		}
		if len(p.GetBlockedBy()) > 0 {
			return t.unblock(ctx, p.GetBlockedBy())
		}
		key = p.GetPath() + "/"
	}
	if err := t.arrive(ctx, in, key); err != nil {
		return err
	}
	if err := t.settle(ctx, objcache.Ino(in.GetIno())); err != nil {
		return err
	}
	if in.GetDir().GetDetour() != "" {
		return t.endDetour(ctx, in)
	}
	return nil
}

// arrive brings a directory and everything below it to a prefix.
func (t *Transfer) arrive(ctx context.Context, in *record.Inode, key string) error {
	d := in.GetDir()
	moved := d.GetMoving() || d.GetPrefix() != key
	if len(key) > 1024 {
		return objcache.Errorf(objcache.NameTooLong, "key of %d bytes for directory %q", len(key), key)
	}
	if moved {
		if d.GetHeading() != key { // known before anything stands there, so that a rename in between cleans it too
			l := in.GetLinks()[0]
			heading := &rpc.Step{Step: &rpc.Step_EndPersist{EndPersist: &rpc.EndPersist{Ino: in.GetIno(), Heading: key}}}
			if err := t.transact(ctx, heading, stillCalled(in.GetIno(), l)); err != nil {
				return err
			}
		}
		failpoint.Hit(failpoint.DirMoveBefore)
		if err := t.moveChildren(ctx, in); err != nil {
			return err
		}
		failpoint.Hit(failpoint.DirMoveAfter)
	}
	switch {
	case in.GetDirty() || moved || in.GetAttrDirty() && t.cfg.Prefix == "":
		if err := t.WriteMarker(ctx, in, key, moved); err != nil {
			return err
		}
	case in.GetAttrDirty():
		if err := t.settleAttributes(ctx, in); err != nil {
			return err
		}
	}
	return t.writeTable(ctx, in, key)
}

func stillCalled(ino uint64, l *record.Link) *rpc.Step {
	return &rpc.Step{Step: &rpc.Step_CheckParent{CheckParent: &rpc.CheckParent{Ino: ino, Dir: l.GetDir(), Name: l.GetName()}}}
}

// WriteMarker writes the object that stands for a directory, and hands its attributes over to the table of the directory above.
func (t *Transfer) WriteMarker(ctx context.Context, in *record.Inode, key string, moved bool) error {
	store, err := t.store(in.GetBucket())
	if err != nil {
		return err
	}
	if _, err := store.Put(ctx, key, bytes.NewReader(nil), metadata(in, nil), external.Condition{}); err != nil {
		return err
	}
	// If it was renamed meanwhile, what was just written is the prefix it had, or was heading for: known to be cleaned.
	l := in.GetLinks()[0]
	return t.transact(ctx,
		&rpc.Step{Step: &rpc.Step_EndPersist{EndPersist: &rpc.EndPersist{Ino: in.GetIno(), Marker: key, Moved: moved, AsOf: in.GetCtime()}}},
		stillCalled(in.GetIno(), l), settledAbove(in.GetIno(), l))
}

// Mark writes the marker of a directory that has none, where it stands now.
func (t *Transfer) Mark(ctx context.Context, ino objcache.Ino) error {
	in, err := meta.Inode(t.cfg.Group.DB(), ino)
	if err != nil || in == nil || in.GetDead() || in.GetDir().GetMarker() || in.GetDir().GetMoving() {
		return err
	}
	path, blocked, err := t.path(ctx, ino)
	if err != nil || blocked || path+"/" != in.GetDir().GetPrefix() {
		return err
	}
	return t.WriteMarker(ctx, in, path+"/", false)
}

// moveChildren brings what is below a renamed directory to where it belongs, one after the other; each move is complete in itself.
func (t *Transfer) moveChildren(ctx context.Context, in *record.Inode) error {
	if !in.GetDir().GetComplete() {
		if err := t.begin(in).wait(ctx); err != nil {
			return err
		}
	}
	var children, late []uint64
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
		_, err := t.cfg.Peers.Call(ctx, ring.HashInode(objcache.Ino(c)), &rpc.Request{Op: &rpc.Request_Persist{Persist: &rpc.PersistRequest{Ino: c, Arrive: true}}})
		switch {
		case err == nil || objcache.KindOf(err) == objcache.Stale:
		case errors.Is(err, objcache.Conflict):
			late = append(late, c)
		default:
			return err
		}
	}
	return waitFor(late...)
}

// Arrive persists an inode of this group so far that no object of it, and of what is below it, stands where it does not belong.
func (t *Transfer) Arrive(ctx context.Context, ino objcache.Ino) error {
	err := t.TryPersist(ctx, ino)
	if err == nil || !errors.Is(err, objcache.Conflict) {
		return err
	}
	if s, serr := t.Standing(ctx, ino); serr != nil || s.GetGone() || s.GetArrived() {
		return serr
	}
	return err
}

// settle ends what a directory that has arrived owes for the names that it had.
func (t *Transfer) settle(ctx context.Context, ino objcache.Ino) error {
	in, err := meta.Inode(t.cfg.Group.DB(), ino)
	if err != nil || in == nil || len(in.GetTrash()) == 0 {
		return err
	}
	if err := t.clean(ctx, in); err != nil {
		return err
	}
	if err := t.allArrived(ctx, in); err != nil {
		return err
	}
	return t.transact(ctx, settled(in)...)
}

// settled are the steps by which a directory owes for its former names no more.
func settled(in *record.Inode) []*rpc.Step {
	end := &rpc.EndPersist{Ino: in.GetIno()}
	steps := []*rpc.Step{{Step: &rpc.Step_EndPersist{EndPersist: end}}}
	for _, b := range in.GetTrash() {
		n := &rpc.Name{Dir: b.GetDir(), Name: b.GetName()}
		if slices.ContainsFunc(end.GetTrashSettled(), func(o *rpc.Name) bool { return o.GetDir() == n.GetDir() && o.GetName() == n.GetName() }) {
			continue
		}
		end.TrashSettled = append(end.TrashSettled, n)
		steps = append(steps, &rpc.Step{Step: &rpc.Step_SettleEntry{SettleEntry: &rpc.SettleEntry{Dir: n.GetDir(), Name: n.GetName(), Ino: in.GetIno(), Gone: true}}})
	}
	return steps
}

// clean deletes the markers and tables of prefixes that a directory has left; it still owes for the names.
func (t *Transfer) clean(ctx context.Context, in *record.Inode) error {
	store, err := t.store(in.GetBucket())
	if err != nil {
		return err
	}
	left := slices.Clone(in.GetTrash())
	if in.GetDead() {
		for _, l := range in.GetLinks() {
			left = append(left, &record.Base{Key: in.GetDir().GetPrefix(), Dir: l.GetDir(), Name: l.GetName()},
				&record.Base{Key: in.GetDir().GetHeading(), Dir: l.GetDir(), Name: l.GetName()})
		}
	}
	var keys []string
	for _, b := range left {
		if b.GetKey() == "" || slices.Contains(keys, b.GetKey()) {
			continue
		}
		keys = append(keys, b.GetKey())
		if b.GetKey() == in.GetDir().GetPrefix() && !in.GetDead() {
			continue // it came back
		}
		if err := t.cleanPrefix(ctx, store, in, b); err != nil {
			return err
		}
	}
	if len(keys) == 0 {
		return nil
	}
	return t.transact(ctx, &rpc.Step{Step: &rpc.Step_EndPersist{EndPersist: &rpc.EndPersist{Ino: in.GetIno(), TrashCleaned: keys}}})
}

func (t *Transfer) cleanPrefix(ctx context.Context, store external.Store, in *record.Inode, b *record.Base) error {
	p, err := t.place(ctx, b.GetDir(), b.GetName(), objcache.Ino(in.GetIno()))
	switch k := objcache.KindOf(err); {
	case err == nil:
		if err := t.keepParent(ctx, b, p); err != nil {
			return err
		}
	case k != objcache.Stale && k != objcache.NotExist: // a directory that is finished needs no marker
		return err
	}
	if err := t.deleteIfKnown(ctx, store, in, b); err != nil || t.cfg.Prefix == "" {
		return err
	}
	return store.Delete(ctx, t.tableKey(b.GetKey()))
}

// finishDeadDir ends a removed directory.
func (t *Transfer) finishDeadDir(ctx context.Context, in *record.Inode) error {
	if err := t.clean(ctx, in); err != nil {
		return err
	}
	if err := t.allArrived(ctx, in); err != nil {
		return err
	}
	steps := settled(in)
	for _, l := range in.GetLinks() {
		steps = append(steps, &rpc.Step{Step: &rpc.Step_SettleEntry{SettleEntry: &rpc.SettleEntry{Dir: l.GetDir(), Name: l.GetName(), Ino: in.GetIno(), Gone: true}}})
	}
	return t.transact(ctx, append(steps, &rpc.Step{Step: &rpc.Step_Forget{Forget: &rpc.Forget{Ino: in.GetIno()}}})...)
}
