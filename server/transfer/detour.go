package transfer

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
)

// maxSearch is how many inodes are looked at in search of a circle, at one try.
const maxSearch = 1000

// outOfCircles runs f, which persists an inode, and if it waits once more for others that wait for it, breaks the circle when that is its turn.
func (t *Transfer) outOfCircles(ctx context.Context, ino objcache.Ino, f func(context.Context) error) error {
	err := f(ctx)
	w := (*waiting)(nil)
	if !errors.As(err, &w) {
		return err
	}
	t.persist.mu.Lock()
	again := t.persist.mu.failed[ino].tries > 0
	t.persist.mu.Unlock()
	if !again {
		return err
	}
	mine, cerr := t.myTurn(ctx, ino, w)
	if cerr != nil || !mine {
		return errors.Join(err, cerr)
	}
	in, ierr := meta.Inode(t.cfg.Group.DB(), ino)
	switch {
	case ierr != nil || in == nil:
		return errors.Join(err, ierr)
	case in.GetDir() != nil:
		ierr = t.takeDetour(ctx, in)
	default:
		ierr = t.aside(ctx, ino)
	}
	if ierr != nil {
		return ierr
	}
	t.persist.mu.Lock() // it waits for nobody now: the others shall not take it for a part of their circle still
	was := t.persist.mu.failed[ino]
	was.waits = nil
	t.persist.mu.failed[ino] = was
	t.persist.mu.Unlock()
	return f(ctx)
}

// myTurn looks for a circle of inodes that wait for each other and reports whether this one has to break it: of the directories that can, or else of
// the files, the one with the smallest number. So the members of a circle agree without talking.
func (t *Transfer) myTurn(ctx context.Context, me objcache.Ino, w *waiting) (bool, error) {
	own, err := t.Standing(ctx, me)
	if err != nil {
		return false, err
	}
	own.WaitsFor, own.Blocked = w.inos, w.blocked
	known := map[uint64]*rpc.StandingReply{uint64(me): own}
	from := map[uint64]uint64{}
	for stack := []uint64{uint64(me)}; len(stack) > 0 && len(known) < maxSearch; {
		n := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for _, next := range known[n].GetWaitsFor() {
			if next == uint64(me) {
				return breaker(known, from, n) == uint64(me), nil
			}
			if known[next] != nil {
				continue
			}
			if known[next], err = t.standing(ctx, next); err != nil {
				return false, err
			}
			from[next] = n
			stack = append(stack, next)
		}
	}
	return false, nil
}

// breaker is who breaks the circle that ends with last; 0: nobody can.
func breaker(known map[uint64]*rpc.StandingReply, from map[uint64]uint64, last uint64) uint64 {
	type candidate struct {
		file int
		ino  uint64
	}
	var all []candidate
	for ino, ok := last, true; ok; ino, ok = from[ino] {
		switch s := known[ino]; {
		case s.GetDir() && s.GetBlocked() && !s.GetDead() && !s.GetDetour():
			all = append(all, candidate{0, ino})
		case !s.GetDir() && s.GetOwes():
			all = append(all, candidate{1, ino})
		}
	}
	if len(all) == 0 {
		return 0
	}
	return slices.MinFunc(all, func(a, b candidate) int { return cmp.Or(a.file-b.file, cmp.Compare(a.ino, b.ino)) }).ino
}

// takeDetour moves everything below a directory to a prefix of its own, which nobody else ever has, until its path is free.
func (t *Transfer) takeDetour(ctx context.Context, in *record.Inode) error {
	prefix := t.cfg.Prefix
	if prefix == "" {
		prefix = meta.HiddenDir + "/"
	}
	prefix += "moving/" + strconv.FormatUint(in.GetIno(), 36) + "-" + strconv.FormatInt(t.now().UnixNano(), 36) + "/"
	t.cfg.Logger.Info("directories moved to each other's names: one makes a detour", "ino", in.GetIno(), "prefix", prefix)
	return t.transact(ctx, &rpc.Step{Step: &rpc.Step_EndPersist{EndPersist: &rpc.EndPersist{Ino: in.GetIno(), Detour: prefix}}})
}

// endDetour lets a directory that owes nothing any more go to its path, once that is free.
func (t *Transfer) endDetour(ctx context.Context, in *record.Inode) error {
	l := in.GetLinks()[0]
	p, err := t.place(ctx, l.GetDir(), l.GetName(), objcache.Ino(in.GetIno()))
	if err != nil {
		return err
	}
	if len(p.GetBlockedBy()) > 0 {
		if err := t.unblock(ctx, p.GetBlockedBy()); !errors.Is(err, objcache.Conflict) {
			return err
		}
		return errWait // nobody waits for it any more, so it is in no circle
	}
	if err := t.transact(ctx, &rpc.Step{Step: &rpc.Step_EndPersist{EndPersist: &rpc.EndPersist{Ino: in.GetIno(), DetourEnd: true}}}); err != nil {
		return err
	}
	return t.persistOne(ctx, objcache.Ino(in.GetIno()))
}
