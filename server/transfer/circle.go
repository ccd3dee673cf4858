package transfer

import (
	"context"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/group"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
	"github.com/objcache/objcache/server/ring"
)

// onlyCopy reports whether an inode's bytes come from the object of a key.
func onlyCopy(in *record.Inode, key string) bool {
	return in.GetMode()&objcache.ModeMask == objcache.ModeRegular && !in.GetDead() && in.GetBase().GetKey() == key && in.GetBase().GetLength() > 0
}

// maxCircle is the longest circle of files that each want another's key; a longer one is only reported.
const maxCircle = 100

// waitsFor reports whether an inode cannot be persisted before another one: its names are taken by bytes of files that themselves wait, and so on
// back to that one (a swap of names).
func (t *Transfer) waitsFor(ctx context.Context, in *record.Inode, other objcache.Ino) (bool, error) {
	seen := map[uint64]bool{}
	for queue := []*record.Inode{in}; len(queue) > 0 && len(seen) < maxCircle; queue = queue[1:] {
		in := queue[0]
		if seen[in.GetIno()] || in.GetIntent() != nil {
			continue // an upload under way ends without anybody's help
		}
		seen[in.GetIno()] = true
		for _, l := range in.GetLinks() {
			p, err := t.place(ctx, l.GetDir(), l.GetName(), objcache.Ino(in.GetIno()))
			if err != nil {
				return false, err
			}
			for _, d := range p.GetDebtors() {
				holder, err := t.inspect(ctx, d)
				if err != nil {
					return false, err
				}
				if holder == nil || !onlyCopy(holder, p.GetPath()) {
					continue
				}
				if holder.GetIno() == uint64(other) {
					return true, nil
				}
				queue = append(queue, holder)
			}
		}
	}
	return false, nil
}

// localizeAtOnce is how many chunks one transaction makes dirty.
const localizeAtOnce = 64

// localize makes all bytes of a file of this group dirty, so that it needs its object no more and others may overwrite it.
func (t *Transfer) localize(ctx context.Context, ino objcache.Ino) error {
	in, err := meta.Inode(t.cfg.Group.DB(), ino)
	if err != nil || in == nil || in.GetIntent() != nil || in.GetDead() || in.GetBase().GetLength() == 0 || in.GetMode()&objcache.ModeMask != objcache.ModeRegular {
		return err
	}
	for first := uint32(0); first < chunks(in); first += localizeAtOnce {
		steps := []*rpc.Step{publish(in, false, in.GetSize())}
		client := t.cfg.Group.PrivateClient()
		for c := first; c < min(first+localizeAtOnce, chunks(in)); c++ {
			if err := t.stageChunk(ctx, client, in, c); err != nil {
				return err
			}
			steps = append(steps, &rpc.Step{Step: &rpc.Step_CommitChunk{CommitChunk: &rpc.CommitChunk{
				Ino: in.GetIno(), Chunk: c, Client: uint64(client), First: 1, Seq: 1, Version: in.GetVersion() + 1,
			}}})
		}
		if err := t.commit(ctx, steps); err != nil {
			return err
		}
		in.Version++
	}
	// Cut to nothing and grown again in one transaction: the base is gone, the extents stay.
	cut := publish(in, true, 0)
	in.Version, in.Generation = in.GetVersion()+1, in.GetGeneration()+1
	return t.commit(ctx, []*rpc.Step{cut, publish(in, false, in.GetSize())})
}

// stepAside deletes the object of a file that moved below a directory of its own old name, where both cannot be.
func (t *Transfer) stepAside(ctx context.Context, ino objcache.Ino) error {
	if err := t.localize(ctx, ino); err != nil {
		return err
	}
	if err := t.emptyTrash(ctx, ino); err != nil {
		return err
	}
	return errWait
}

// aside takes all objects of a file away, wherever they are, after making its bytes dirty: whoever needs their place need not wait for the file.
func (t *Transfer) aside(ctx context.Context, ino objcache.Ino) error {
	if err := t.localize(ctx, ino); err != nil {
		return err
	}
	in, err := meta.Inode(t.cfg.Group.DB(), ino)
	if err != nil || in == nil {
		return err
	}
	if !in.GetDead() && len(in.GetLinks()) > 0 {
		drop := &rpc.Step{Step: &rpc.Step_EndPersist{EndPersist: &rpc.EndPersist{Ino: uint64(ino), DropLinks: true}}}
		if err := t.transact(ctx, drop); err != nil {
			return err
		}
	}
	return t.emptyTrashNow(ctx, ino, true)
}

func (t *Transfer) commit(ctx context.Context, steps []*rpc.Step) error {
	if err := t.cfg.Group.SyncFor(ctx, steps); err != nil {
		return err
	}
	_, err := t.cfg.Group.Transact(ctx, group.Tx{Header: &rpc.Header{Start: t.now().UnixNano()}, Steps: steps})
	return err
}

// publish is the next version of a file whose times stay.
func publish(in *record.Inode, truncate bool, size int64) *rpc.Step {
	return &rpc.Step{Step: &rpc.Step_FlushInode{FlushInode: &rpc.FlushInode{
		Ino: in.GetIno(), Generation: in.GetGeneration(), Version: in.GetVersion(), Size: size, Mtime: in.GetMtime(), Now: in.GetCtime(), Truncate: truncate,
	}}}
}

// stageChunk stages the bytes of one chunk, as readers see them, at its owner.
func (t *Transfer) stageChunk(ctx context.Context, client objcache.ClientID, in *record.Inode, c uint32) error {
	k := objcache.ChunkKey{Ino: objcache.Ino(in.GetIno()), Index: c}
	n := min(objcache.ChunkSize, in.GetSize()-k.Offset())
	r, err := t.cfg.Peers.Call(ctx, ring.HashChunk(k), &rpc.Request{Op: &rpc.Request_Read{Read: &rpc.ReadRequest{
		Ino: in.GetIno(), Chunk: c, Version: in.GetVersion(), Len: n, Size: in.GetSize(),
	}}})
	if err != nil {
		return err
	}
	_, err = t.cfg.Peers.Call(ctx, ring.HashChunk(k), &rpc.Request{
		Header: &rpc.Header{Client: uint64(client), Internal: true},
		Op: &rpc.Request_Stage{Stage: &rpc.StageRequest{
			Ino: in.GetIno(), Chunk: c, Generation: in.GetGeneration(), Seq: 1, Data: r.GetRead().GetData(),
		}},
	})
	return err
}
