package transfer

import (
	"context"
	"errors"
	"slices"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
	"github.com/objcache/objcache/server/ring"
)

// Standing says where an inode of this group stands in external storage and what its persist waits for.
func (t *Transfer) Standing(ctx context.Context, ino objcache.Ino) (*rpc.StandingReply, error) {
	if err := t.cfg.Group.WaitDecided(ctx, meta.LockInode(uint64(ino))); err != nil {
		return nil, err
	}
	in, err := meta.Inode(t.cfg.Group.DB(), ino)
	if err != nil {
		return nil, err
	}
	if in == nil {
		return &rpc.StandingReply{Gone: true}, nil
	}
	s := &rpc.StandingReply{Dir: in.GetDir() != nil, Dead: in.GetDead(), Detour: in.GetDir().GetDetour() != ""}
	t.persist.mu.Lock()
	if w := t.persist.mu.failed[ino].waits; w != nil {
		s.WaitsFor, s.Blocked = w.inos, w.blocked
	}
	t.persist.mu.Unlock()
	if !s.GetDir() {
		s.Owes, err = t.misplaced(ctx, in)
		s.Arrived = !s.GetOwes()
		waitsAbove(in, s)
		return s, err
	}
	s.Owes = len(in.GetTrash()) > 0
	if s.Arrived, err = t.arrived(ctx, in); err != nil {
		return nil, err
	}
	waitsAbove(in, s)
	return s, t.owedIn(in, s)
}

// waitsAbove says that what nobody has tried to bring where it belongs waits for the directories that it is in: they are on their way, and bring it.
func waitsAbove(in *record.Inode, s *rpc.StandingReply) {
	if s.GetArrived() || s.GetDead() || len(s.GetWaitsFor()) > 0 {
		return
	}
	for _, l := range in.GetLinks() {
		s.WaitsFor = append(s.WaitsFor, l.GetDir())
	}
}

// misplaced reports whether a file has, or may come to have, an object that does not stand where the file's name is now.
func (t *Transfer) misplaced(ctx context.Context, in *record.Inode) (bool, error) {
	if len(in.GetTrash()) > 0 || in.GetIntent() != nil {
		return true, nil
	}
	for _, l := range in.GetLinks() {
		if l.GetKey() == "" {
			continue
		}
		p, err := t.place(ctx, l.GetDir(), l.GetName(), objcache.Ino(in.GetIno()))
		if err != nil || p.GetPath() != l.GetKey() {
			return true, err
		}
	}
	return false, nil
}

// arrived reports whether a directory has no object of its own where it does not belong; then nothing below it has either.
func (t *Transfer) arrived(ctx context.Context, in *record.Inode) (bool, error) {
	d := in.GetDir()
	switch {
	case slices.ContainsFunc(in.GetTrash(), func(b *record.Base) bool { return b.GetKey() != "" }):
		return false, nil
	case in.GetDead():
		return d.GetPrefix() == "" && d.GetHeading() == "", nil
	case d.GetMoving():
		return false, nil
	}
	path, _, err := t.path(ctx, objcache.Ino(in.GetIno()))
	return err == nil && (path == "" || path+"/" == d.GetPrefix()), err
}

// owedIn lists who owes for names of a directory, and the directories in it.
func (t *Transfer) owedIn(in *record.Inode, s *rpc.StandingReply) error {
	return meta.ScanEntries(t.cfg.Group.DB(), objcache.Ino(in.GetIno()), "", func(_ string, row *record.DirEntry) (bool, error) {
		for _, d := range row.GetDebts() {
			s.Debtors = append(s.Debtors, d.GetIno())
		}
		if row.GetIno() != 0 && row.GetMode()&objcache.ModeMask == objcache.ModeDir {
			s.Below = append(s.Below, row.GetIno())
		}
		return true, nil
	})
}

func (t *Transfer) standing(ctx context.Context, ino uint64) (*rpc.StandingReply, error) {
	r, err := t.cfg.Peers.Call(ctx, ring.HashInode(objcache.Ino(ino)), &rpc.Request{Op: &rpc.Request_Standing{Standing: &rpc.StandingRequest{Ino: ino}}})
	if k := objcache.KindOf(err); err != nil && (k == objcache.Stale || k == objcache.NotExist) {
		return &rpc.StandingReply{Gone: true}, nil
	}
	if err != nil {
		return nil, err
	}
	return r.GetStanding(), nil
}

// allArrived returns nil when nothing can be left below the former prefixes of a directory: it and the directories in it, those that left one of them,
// those that left these, and so on, have all arrived where they belong, and the files among them have nothing there any more. So directories that moved
// out of and into each other need not wait for each other. Else who is late is persisted, and waited for.
func (t *Transfer) allArrived(ctx context.Context, dir *record.Inode) error {
	seen := map[uint64]bool{}
	var late []uint64
	for queue := []uint64{dir.GetIno()}; len(queue) > 0; queue = queue[1:] {
		ino := queue[0]
		if seen[ino] {
			continue
		}
		seen[ino] = true
		s, err := t.standing(ctx, ino)
		if err != nil {
			return err
		}
		switch {
		case s.GetGone():
		case !s.GetDir() || !s.GetArrived():
			late = append(late, ino)
		case s.GetDead() || s.GetOwes(): // one that owes nothing has made sure of what is in it
			queue = append(append(queue, s.GetDebtors()...), s.GetBelow()...)
		}
	}
	for _, ino := range late {
		if ino == dir.GetIno() {
			continue // not there any more: the next try begins anew
		}
		if err := t.persistElsewhere(ctx, ino); err != nil && !errors.Is(err, objcache.Conflict) && objcache.KindOf(err) != objcache.Stale {
			return err
		}
	}
	return waitFor(late...)
}
