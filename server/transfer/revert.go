package transfer

import (
	"context"
	"errors"

	"google.golang.org/protobuf/proto"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/external"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
)

// Lose is told by an owner of chunks that bytes of a file, committed up to a version, are gone for good. The file goes back to its last persisted version
// unless that has them. NotExist or Stale when the file itself is gone.
func (t *Transfer) Lose(ctx context.Context, r *rpc.LoseRequest) (*rpc.LoseReply, error) {
	in, err := meta.Inode(t.cfg.Group.DB(), objcache.Ino(r.GetIno()))
	switch {
	case err != nil:
		return nil, err
	case in == nil || in.GetDead():
		return nil, objcache.Errorf(objcache.Stale, "inode %d", r.GetIno())
	case in.GetBase().GetVersion() >= r.GetVersion():
		return &rpc.LoseReply{Persisted: in.GetBase().GetVersion()}, nil
	}
	if in.GetLost() == "" {
		if err := t.insist(ctx, lose(r.GetIno(), r.GetCause())); err != nil {
			return nil, err
		}
	}
	return &rpc.LoseReply{Lost: true}, nil
}

func lose(ino uint64, cause string) *rpc.Step {
	return &rpc.Step{Step: &rpc.Step_LoseInode{LoseInode: &rpc.LoseInode{Ino: ino, Cause: cause}}}
}

// revert takes a lost file back to its last persisted version: its names are forgotten and listed again, after each has an object of that version where
// there is one. Whoever has it open gets Stale. No upload of it is under way.
func (t *Transfer) revert(ctx context.Context, in *record.Inode) error {
	if !in.GetDirty() && !in.GetOrphan() {
		return t.insist(ctx, lose(in.GetIno(), "")) // an upload had been faster
	}
	loss := &rpc.Loss{Ino: in.GetIno(), At: t.now().UnixNano(), Cause: in.GetLost(), Path: "(removed, and still open) inode " + objcache.Ino(in.GetIno()).String()}
	end := &rpc.RevertInode{Ino: in.GetIno(), Version: in.GetVersion(), Links: uint32(len(in.GetLinks())), Losses: []*rpc.Loss{loss}}
	var steps []*rpc.Step
	for i, l := range in.GetLinks() {
		name, more, err := t.revertLink(ctx, in, l)
		if err != nil {
			return err
		}
		steps = append(steps, more...)
		if i > 0 {
			loss = proto.CloneOf(loss)
			loss.At++ // the key of its row
			end.Losses = append(end.Losses, loss)
		}
		loss.Path, loss.Kept = name.path, name.kept
	}
	steps = append(steps, &rpc.Step{Step: &rpc.Step_RevertInode{RevertInode: end}})
	if err := t.insist(ctx, steps...); err != nil {
		return err
	}
	for _, l := range end.GetLosses() {
		t.cfg.Logger.Error("the latest content of a file is lost", "path", l.GetPath(), "ino", in.GetIno(), "cause", l.GetCause(), "kept", l.GetKept())
	}
	return nil
}

// reverted is what a name of a lost file was and is.
type reverted struct{ path, kept string }

// revertLink brings the last persisted version of a file under one of its names, and plans to forget the name. What others owe for it they owe no more: the
// object of the file that it replaced is the name's last persisted version.
func (t *Transfer) revertLink(ctx context.Context, in *record.Inode, l *record.Link) (reverted, []*rpc.Step, error) {
	ino := objcache.Ino(in.GetIno())
	dir, err := t.inspect(ctx, l.GetDir())
	if err != nil {
		return reverted{}, nil, err
	}
	p, err := t.place(ctx, l.GetDir(), l.GetName(), ino)
	if err != nil {
		return reverted{}, nil, err
	}
	if len(p.GetBlockedBy()) > 0 {
		return reverted{}, nil, t.unblock(ctx, p.GetBlockedBy())
	}
	key := dir.GetDir().GetPrefix() + l.GetName()
	r := reverted{path: p.GetBucket() + "/" + p.GetPath()}
	claim := &rpc.Step{Step: &rpc.Step_ClaimEntry{ClaimEntry: &rpc.ClaimEntry{Dir: l.GetDir(), Name: l.GetName(), Ino: in.GetIno()}}}
	if err := t.insist(ctx, claim); err != nil {
		return r, nil, err
	}
	var steps []*rpc.Step
	forget := &rpc.RevertEntry{Dir: l.GetDir(), Name: l.GetName(), Ino: in.GetIno()}
	for i, d := range p.GetDebtors() {
		if k := p.GetDebtKeys()[i]; d == in.GetIno() || k != "" && k != key {
			continue
		}
		owing, err := t.inspect(ctx, d)
		if err != nil {
			return r, nil, err
		}
		switch {
		case owing.GetIntent() != nil || owing != nil && onlyCopy(owing, key):
			// What it is writing is not known to stand there, or not to. Or the object there is all that a file has that went elsewhere.
			if err := t.persistElsewhere(ctx, d); err != nil && !errors.Is(err, objcache.Conflict) {
				return r, nil, err
			}
			return r, nil, waitFor(d)
		case owing != nil && !owing.GetDead():
			continue // it has another name and what it needs there; what stands here still has to go
		}
		r.kept = key
		forget.Settled = append(forget.Settled, d)
		if owing != nil {
			steps = append(steps, &rpc.Step{Step: &rpc.Step_EndPersist{EndPersist: &rpc.EndPersist{
				Ino: d, TrashGone: []string{key}, TrashName: &rpc.Name{Dir: l.GetDir(), Name: l.GetName()},
			}}})
		}
	}
	kept, err := t.restore(ctx, in, l, key)
	if err != nil {
		return r, nil, err
	}
	if kept {
		r.kept = key
	}
	return r, append(steps, &rpc.Step{Step: &rpc.Step_RevertEntry{RevertEntry: forget}}), nil
}

// restore makes sure that the last persisted version of a file stands under a key; false when there is none.
func (t *Transfer) restore(ctx context.Context, in *record.Inode, l *record.Link, key string) (bool, error) {
	base := in.GetBase()
	switch {
	case l.GetKey() == key:
		return true, nil
	case base.GetKey() == "":
		return false, nil
	}
	store, err := t.store(in.GetBucket())
	if err != nil {
		return false, err
	}
	_, err = store.Copy(ctx, key, base.GetKey(), base.GetEtag(), nil, external.Condition{})
	if baseGone(err) {
		return false, nil // somebody else changed or deleted it
	}
	return err == nil, err
}

// pinAgain pins an upload's version once more when a group has lost its pins with its disk, for the next attempt; err is how this one failed. If the
// version is not there any more, the upload is given up at the next attempt.
func (t *Transfer) pinAgain(ctx context.Context, in *record.Inode, err error) error {
	if !errors.Is(err, objcache.Conflict) {
		return err
	}
	var pins []*rpc.Step
	for c := range chunks(in) {
		pins = append(pins, pin(in, c))
	}
	perr := t.transactAll(ctx, pins)
	if errors.Is(perr, objcache.Conflict) {
		t.persist.giveUpPins(in.GetIntent())
	}
	return errors.Join(err, perr)
}

func pin(in *record.Inode, c uint32) *rpc.Step {
	return &rpc.Step{Step: &rpc.Step_PinChunk{PinChunk: &rpc.PinChunk{Ino: in.GetIno(), Chunk: c, Version: in.GetIntent().GetVersion()}}}
}

// giveUpPins notes that bytes of an upload's version are gone.
func (p *persisting) giveUpPins(it *record.Intent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.unpinned == nil {
		p.mu.unpinned = map[string]bool{}
	}
	p.mu.unpinned[txString(it.GetTx())] = true
}

func (p *persisting) unpinnable(it *record.Intent) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.unpinned[txString(it.GetTx())]
}
