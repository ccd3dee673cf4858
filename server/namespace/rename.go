package namespace

import (
	"context"
	"errors"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/group"
	"github.com/objcache/objcache/server/record"
	"github.com/objcache/objcache/server/ring"
)

// Flags of renameat2(2).
const (
	renameNoReplace = 1
	renameExchange  = 2
)

// Rename moves a name, replacing what stands there unless flags forbid it. The coordinator is the owner of the old directory.
func (f *FS) Rename(ctx context.Context, h *rpc.Header, r *rpc.RenameRequest) (*rpc.Reply, error) {
	return again(ctx, func() (*rpc.Reply, error) {
		p, err := f.planRename(ctx, r)
		if err != nil {
			return nil, err
		}
		if p.same {
			if err := f.stillThere(ctx, p); err != nil {
				return nil, err
			}
			return &rpc.Reply{Result: &rpc.Reply_Empty{Empty: &rpc.Empty{}}}, nil
		}
		reply, err := f.Group.Transact(ctx, group.Tx{Header: h, Steps: p.steps})
		if errors.Is(err, objcache.Exist) && r.GetFlags()&renameNoReplace == 0 {
			return nil, objcache.Errorf(objcache.Conflict, "%q was free: %v", r.GetNewName(), err)
		}
		return reply, err
	})
}

// stillThere is a Conflict when the old name has gone meanwhile: then another rename had moved it to the new name before that was looked at.
func (f *FS) stillThere(ctx context.Context, p *renaming) error {
	dir, err := f.directory(ctx, objcache.Ino(p.r.GetDir()))
	if err != nil {
		return err
	}
	row, err := f.entry(ctx, dir, p.r.GetName())
	if err == nil && row.GetIno() != p.from.GetIno() {
		err = objcache.Errorf(objcache.Conflict, "name %q in directory %d is not inode %d any more", p.r.GetName(), p.r.GetDir(), p.from.GetIno())
	}
	return err
}

// renaming is what a rename found and what it will do.
type renaming struct {
	r        *rpc.RenameRequest
	from, to *record.Inode // the inodes of the two names; to is nil when the new name is free
	same     bool          // both names are the same file: nothing to do
	steps    []*rpc.Step
}

func (f *FS) planRename(ctx context.Context, r *rpc.RenameRequest) (*renaming, error) {
	if r.GetFlags()&^(renameNoReplace|renameExchange) != 0 || r.GetFlags() == renameNoReplace|renameExchange {
		return nil, objcache.Errorf(objcache.Invalid, "rename flags %d", r.GetFlags())
	}
	dir, err := f.directory(ctx, objcache.Ino(r.GetDir()))
	if err != nil {
		return nil, err
	}
	newDir := dir
	if r.GetNewDir() != r.GetDir() {
		if newDir, err = f.Inode(ctx, objcache.Ino(r.GetNewDir())); err != nil {
			return nil, err
		}
	}
	if r.GetDir() == uint64(objcache.RootIno) {
		return nil, objcache.Errorf(objcache.NotPermitted, "%q is a bucket", r.GetName())
	}
	if err := checkName(newDir, r.GetNewName()); err != nil {
		return nil, err
	}
	p := &renaming{r: r}
	row, err := f.entry(ctx, dir, r.GetName())
	if err != nil {
		return nil, err
	}
	if row == nil {
		return nil, objcache.Errorf(objcache.NotExist, "name %q in directory %d", r.GetName(), r.GetDir())
	}
	if p.from, err = f.changing(ctx, row.GetIno()); err != nil {
		return nil, err
	}
	if err := f.findTarget(ctx, p); err != nil {
		return nil, err
	}
	return p, f.checkRename(ctx, p, dir, newDir)
}

// changing reads an inode that a name led to; that it is gone means that the name has changed.
func (f *FS) changing(ctx context.Context, ino uint64) (*record.Inode, error) {
	in, err := f.Inode(ctx, objcache.Ino(ino))
	if k := objcache.KindOf(err); k == objcache.Stale || k == objcache.NotExist {
		return nil, objcache.Errorf(objcache.Conflict, "inode %d: %w", ino, err)
	}
	return in, err
}

func (f *FS) findTarget(ctx context.Context, p *renaming) error {
	t, err := f.Peers.Call(ctx, ring.HashInode(objcache.Ino(p.r.GetNewDir())), &rpc.Request{
		Op: &rpc.Request_Lookup{Lookup: &rpc.LookupRequest{Dir: p.r.GetNewDir(), Name: p.r.GetNewName()}},
	})
	if objcache.KindOf(err) == objcache.NotExist && err != nil {
		return nil
	}
	if err != nil {
		return err
	}
	p.to, err = f.changing(ctx, t.GetAttr().GetAttr().GetIno())
	return err
}

func isDir(in *record.Inode) bool { return in.GetMode()&objcache.ModeMask == objcache.ModeDir }

func (f *FS) checkRename(ctx context.Context, p *renaming, dir, newDir *record.Inode) error {
	r := p.r
	exchange := r.GetFlags()&renameExchange != 0
	switch {
	case p.from.GetBucket() != newDir.GetBucket():
		return objcache.Errorf(objcache.CrossDevice, "from bucket %q to %q", p.from.GetBucket(), newDir.GetBucket())
	case p.to == nil && exchange:
		return objcache.Errorf(objcache.NotExist, "name %q in directory %d", r.GetNewName(), r.GetNewDir())
	case p.to != nil && r.GetFlags()&renameNoReplace != 0:
		return objcache.Errorf(objcache.Exist, "name %q in directory %d", r.GetNewName(), r.GetNewDir())
	case p.to != nil && p.to.GetIno() == p.from.GetIno():
		p.same = true
		return nil
	case p.to != nil && !exchange && isDir(p.to) && !isDir(p.from):
		return objcache.Errorf(objcache.IsDir, "%q", r.GetNewName())
	case p.to != nil && !exchange && !isDir(p.to) && isDir(p.from):
		return objcache.Errorf(objcache.NotDir, "%q", r.GetNewName())
	}
	moved := r.GetDir() != r.GetNewDir()
	if isDir(p.from) && moved {
		if err := f.checkCycle(ctx, p, p.from.GetIno(), newDir); err != nil {
			return err
		}
	}
	if exchange && isDir(p.to) && moved {
		if err := f.checkCycle(ctx, p, p.to.GetIno(), dir); err != nil {
			return err
		}
	}
	if exchange {
		p.exchange()
		return nil
	}
	return f.replace(ctx, p)
}

// checkCycle refuses to move a directory below itself. Every directory on the way up is locked and looked at again by the transaction, so that two
// renames cannot make a loop of each other: one of them sees a Conflict and looks again.
func (f *FS) checkCycle(ctx context.Context, p *renaming, moving uint64, below *record.Inode) error {
	for d := below; d.GetIno() != uint64(objcache.RootIno); {
		if d.GetIno() == moving {
			return objcache.Errorf(objcache.Invalid, "directory %d cannot move below itself", moving)
		}
		if len(d.GetLinks()) == 0 {
			return objcache.Errorf(objcache.NotExist, "directory %d", d.GetIno())
		}
		l := d.GetLinks()[0]
		if l.GetDir() != uint64(objcache.RootIno) { // bucket directories never move
			p.steps = append(p.steps, &rpc.Step{Step: &rpc.Step_CheckParent{CheckParent: &rpc.CheckParent{
				Ino: d.GetIno(), Dir: l.GetDir(), Name: l.GetName(),
			}}})
		}
		up, err := f.changing(ctx, l.GetDir())
		if err != nil {
			return err
		}
		d = up
	}
	return nil
}

func (f *FS) replace(ctx context.Context, p *renaming) error {
	r := p.r
	add := &rpc.AddEntry{Dir: r.GetNewDir(), Name: r.GetNewName(), Ino: p.from.GetIno(), Mode: p.from.GetMode(), Now: r.GetNow()}
	fromDebt := debt(p.from, r.GetDir(), r.GetName())
	p.steps = append(p.steps, &rpc.Step{Step: &rpc.Step_RemoveEntry{RemoveEntry: &rpc.RemoveEntry{
		Dir: r.GetDir(), Name: r.GetName(), Expect: p.from.GetIno(), Now: r.GetNow(), Debt: fromDebt,
	}}})
	if p.to != nil {
		to, drop, err := f.dropName(ctx, p.to.GetIno(), r.GetNewDir(), r.GetNewName(), r.GetNow())
		if err != nil {
			return err
		}
		add.Expect, add.Debt = to.GetIno(), debt(to, r.GetNewDir(), r.GetNewName())
		p.steps = append(p.steps, drop)
	}
	p.steps = append(p.steps,
		&rpc.Step{Step: &rpc.Step_AddEntry{AddEntry: add}},
		relink(p.from, r.GetDir(), r.GetName(), r.GetNewDir(), r.GetNewName(), r.GetNow(), fromDebt))
	return nil
}

func relink(in *record.Inode, dir uint64, name string, newDir uint64, newName string, now int64, owed *rpc.Debt) *rpc.Step {
	return &rpc.Step{Step: &rpc.Step_Relink{Relink: &rpc.Relink{
		Ino: in.GetIno(), DelDir: dir, DelName: name, AddDir: newDir, AddName: newName, Now: now, Owed: owed,
	}}}
}

func (p *renaming) exchange() {
	r := p.r
	a, b := debt(p.from, r.GetDir(), r.GetName()), debt(p.to, r.GetNewDir(), r.GetNewName())
	p.steps = append(p.steps,
		&rpc.Step{Step: &rpc.Step_AddEntry{AddEntry: &rpc.AddEntry{
			Dir: r.GetDir(), Name: r.GetName(), Ino: p.to.GetIno(), Mode: p.to.GetMode(), Expect: p.from.GetIno(), Now: r.GetNow(), Debt: a,
		}}},
		&rpc.Step{Step: &rpc.Step_AddEntry{AddEntry: &rpc.AddEntry{
			Dir: r.GetNewDir(), Name: r.GetNewName(), Ino: p.from.GetIno(), Mode: p.from.GetMode(), Expect: p.to.GetIno(), Now: r.GetNow(), Debt: b,
		}}},
		relink(p.from, r.GetDir(), r.GetName(), r.GetNewDir(), r.GetNewName(), r.GetNow(), a),
		relink(p.to, r.GetNewDir(), r.GetNewName(), r.GetDir(), r.GetName(), r.GetNow(), b))
}
