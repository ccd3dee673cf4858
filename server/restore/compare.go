package restore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/group"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
)

// atOnce is how many questions go in one message.
const atOnce = 1000

// question is one thing that rows here say of another group's rows, and what is done when it is not so.
type question struct {
	have *rpc.Have
	act  func(context.Context, *rpc.Had) error
}

// compare asks another group about everything that rows here say of its rows, and mends what is not so here.
func (r *Restore) compare(ctx context.Context, with objcache.GroupID, cause string) error {
	c := &comparison{Restore: r, with: with, cause: cause}
	lo, hi := meta.ReplicatedBounds()
	now := r.Group.DB().NewSnapshot()
	err := meta.Scan(now, lo, hi, func(k, v []byte) (bool, error) {
		if err := c.row(k, v); err != nil {
			return false, err
		}
		if len(c.open) < atOnce {
			return ctx.Err() == nil, nil
		}
		return true, c.ask(ctx)
	})
	if cerr := now.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ended(ctx)
	}
	return c.ask(ctx)
}

type comparison struct {
	*Restore
	with  objcache.GroupID
	cause string
	open  []question
}

func (c *comparison) add(h *rpc.Have, act func(context.Context, *rpc.Had) error) {
	c.open = append(c.open, question{h, act})
}

func (c *comparison) ask(ctx context.Context) error {
	if len(c.open) == 0 {
		return nil
	}
	q := &rpc.HaveRequest{}
	for _, o := range c.open {
		q.Items = append(q.Items, o.have)
	}
	var had []*rpc.Had
	err := c.insist(ctx, func() error {
		r, err := c.Peers.Ask(ctx, c.with, &rpc.Request{Header: &rpc.Header{Internal: true}, Op: &rpc.Request_Have{Have: q}})
		had = r.GetHave().GetItems()
		return err
	})
	if err != nil {
		return err
	}
	if len(had) != len(c.open) {
		return objcache.Errorf(objcache.IO, "%d answers to %d questions", len(had), len(c.open))
	}
	for i, o := range c.open {
		if err := o.act(ctx, had[i]); err != nil {
			return err
		}
	}
	c.open = nil
	return nil
}

// theirs reports whether the other group owns an inode.
func (c *comparison) theirs(ino uint64) bool {
	return ino != uint64(objcache.RootIno) && c.View().OwnerOfInode(objcache.Ino(ino)) == c.with
}

func (c *comparison) row(k, v []byte) error {
	switch meta.RowKind(k) {
	case 'i':
		in := &record.Inode{}
		if err := decode(k, v, in); err != nil {
			return err
		}
		c.inode(in)
	case 'e':
		e := &record.DirEntry{}
		if err := decode(k, v, e); err != nil {
			return err
		}
		c.entry(uint64(meta.KeyIno(k)), meta.EntryName(k), e)
	case 'x':
		x := &record.Chunk{}
		if err := decode(k, v, x); err != nil {
			return err
		}
		c.chunk(meta.ParseChunkKey(k), x)
	}
	return nil
}

func (c *comparison) inode(in *record.Inode) {
	ino := in.GetIno()
	if meta.Missing(in, c.with, 0) && in.GetLost() == "" && !in.GetDead() {
		c.add(&rpc.Have{Ino: ino, Size: in.GetSize()}, func(ctx context.Context, had *rpc.Had) error {
			if !meta.Missing(in, c.with, had.GetChunkVersion()) {
				return nil
			}
			return gone(c.transact(ctx, &rpc.Step{Step: &rpc.Step_LoseInode{LoseInode: &rpc.LoseInode{Ino: ino, Cause: c.cause}}}))
		})
	}
	for _, l := range in.GetLinks() {
		if c.theirs(l.GetDir()) && !in.GetDead() { // a dead directory has lost the name that it still tells
			c.add(&rpc.Have{Entry: true, Ino: ino, Dir: l.GetDir(), Name: l.GetName()}, func(ctx context.Context, had *rpc.Had) error {
				if had.GetEntryIno() == ino {
					return nil
				}
				return c.attach(ctx, in, l, had)
			})
		}
	}
	for _, b := range in.GetTrash() {
		if c.theirs(b.GetDir()) {
			c.add(&rpc.Have{Entry: true, Ino: ino, Dir: b.GetDir(), Name: b.GetName()}, func(ctx context.Context, had *rpc.Had) error {
				if had.GetOwes() || had.GetEntryIno() == ino || !had.GetExists() {
					return nil
				}
				// The directory does not know any more that this object is to be deleted, and may be the only copy until then.
				return gone(c.transact(ctx, owe(b.GetDir(), b.GetName(), &rpc.Debt{Ino: ino, Key: b.GetKey(), Etag: b.GetEtag(), Dir: in.GetDir() != nil})))
			})
		}
	}
}

func (c *comparison) entry(dir uint64, name string, e *record.DirEntry) {
	if e.GetIno() != 0 && c.theirs(e.GetIno()) {
		c.add(&rpc.Have{Ino: e.GetIno(), Dir: dir, Name: name}, func(ctx context.Context, had *rpc.Had) error {
			if had.GetExists() && !had.GetDead() && had.GetLinked() {
				return nil
			}
			c.Logger.Warn("a name leads nowhere after the loss of a disk: what external storage has is listed again", "dir", dir, "name", name, "ino", e.GetIno(), "had", had)
			return gone(c.transact(ctx, &rpc.Step{Step: &rpc.Step_RevertEntry{RevertEntry: &rpc.RevertEntry{Dir: dir, Name: name, Ino: e.GetIno()}}}))
		})
	}
	owing := map[uint64]bool{e.GetBusy(): true} // who changes the object now has an intent, or something to delete
	for _, d := range e.GetDebts() {
		owing[d.GetIno()] = true
	}
	for ino := range owing {
		if ino == 0 || !c.theirs(ino) {
			continue
		}
		c.add(&rpc.Have{Ino: ino, Dir: dir, Name: name}, func(ctx context.Context, had *rpc.Had) error {
			if had.GetOwes() {
				return nil
			}
			return gone(c.transact(ctx, &rpc.Step{Step: &rpc.Step_RevertEntry{RevertEntry: &rpc.RevertEntry{Dir: dir, Name: name, Ino: ino, Debt: true}}}))
		})
	}
}

func (c *comparison) chunk(k objcache.ChunkKey, x *record.Chunk) {
	if !c.theirs(uint64(k.Ino)) {
		return
	}
	c.add(&rpc.Have{Ino: uint64(k.Ino)}, func(ctx context.Context, had *rpc.Had) error {
		switch {
		case !had.GetExists():
			return c.drop(ctx, k)
		case had.GetVersion() < x.GetVersion():
			return c.insist(ctx, func() error { return c.lose(ctx, group.Lost{Chunk: k, Version: x.GetVersion()}, c.cause) })
		}
		return nil
	})
}

// gone is nil when what a step was about does not exist any more.
func gone(err error) error {
	switch objcache.KindOf(err) {
	case objcache.NotExist, objcache.Stale:
		return nil
	}
	return err
}

// attach gives an inode of this group its name again, which the other group has lost; another one when somebody else has it now.
func (c *comparison) attach(ctx context.Context, in *record.Inode, l *record.Link, had *rpc.Had) error {
	now := time.Now().UnixNano()
	if had.GetExists() && had.GetEntryIno() == 0 {
		c.Logger.Warn("a name was lost with a disk and is given back", "dir", l.GetDir(), "name", l.GetName(), "ino", in.GetIno())
		return taken(c.transact(ctx, &rpc.Step{Step: &rpc.Step_AddEntry{AddEntry: &rpc.AddEntry{
			Dir: l.GetDir(), Name: l.GetName(), Ino: in.GetIno(), Mode: in.GetMode(), Now: now,
		}}}))
	}
	name := fmt.Sprintf("%s.objcache-recovered-%d", shorten(l.GetName()), in.GetIno())
	dir := l.GetDir()
	if !had.GetExists() {
		dir = uint64(meta.BucketIno(in.GetBucket()))
	}
	if slices.ContainsFunc(in.GetLinks(), func(o *record.Link) bool { return o.GetDir() == dir && o.GetName() == name }) {
		return nil // done before
	}
	if in.GetDir() == nil && !meta.Owes(in) && len(in.GetLinks()) == 1 {
		// External storage has it, and what somebody else has under its name came before or after: which of the two is not known any more.
		return gone(c.transact(ctx,
			&rpc.Step{Step: &rpc.Step_LoseInode{LoseInode: &rpc.LoseInode{Ino: in.GetIno(), Cause: c.cause}}},
			&rpc.Step{Step: &rpc.Step_RevertInode{RevertInode: &rpc.RevertInode{Ino: in.GetIno(), Version: in.GetVersion(), Links: 1}}}))
	}
	c.Logger.Warn("a name was lost with a disk: its file has another now", "dir", dir, "name", name, "ino", in.GetIno())
	move := &rpc.Relink{Ino: in.GetIno(), DelDir: l.GetDir(), DelName: l.GetName(), AddDir: dir, AddName: name, Now: now}
	steps := []*rpc.Step{
		{Step: &rpc.Step_AddEntry{AddEntry: &rpc.AddEntry{Dir: dir, Name: name, Ino: in.GetIno(), Mode: in.GetMode(), Now: now}}},
		{Step: &rpc.Step_Relink{Relink: move}},
	}
	if in.GetDir() == nil {
		if move.Owed = meta.DebtOf(in, l); move.GetOwed() != nil && had.GetExists() {
			steps = append(steps, owe(l.GetDir(), l.GetName(), move.GetOwed()))
		}
	}
	return taken(c.transact(ctx, steps...))
}

func owe(dir uint64, name string, d *rpc.Debt) *rpc.Step {
	return &rpc.Step{Step: &rpc.Step_OweEntry{OweEntry: &rpc.OweEntry{Dir: dir, Name: name, Debt: d}}}
}

// taken begins the comparison again when the name has gone to somebody meanwhile.
func taken(err error) error {
	if objcache.KindOf(err) == objcache.Exist {
		return objcache.Errorf(objcache.Conflict, "%w", err)
	}
	return gone(err)
}

// shorten leaves room for a suffix within a name's 255 bytes.
func shorten(name string) string {
	const most = 255 - len(".objcache-recovered-") - 20
	if len(name) <= most {
		return name
	}
	return name[:most]
}
