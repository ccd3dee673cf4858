package namespace

import (
	"context"
	"slices"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/group"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
	"github.com/objcache/objcache/server/ring"
)

// Open notes that a session has a file open and returns its attributes as of now.
func (f *FS) Open(ctx context.Context, h *rpc.Header, r *rpc.OpenRequest) (*rpc.Reply, error) {
	in, err := f.OwnInode(ctx, objcache.Ino(r.GetIno()))
	if err != nil {
		return nil, err
	}
	if in.GetDead() {
		return nil, objcache.Errorf(objcache.Stale, "inode %d", r.GetIno())
	}
	f.Group.Opened(objcache.ClientID(h.GetClient()), objcache.Ino(r.GetIno()), r.GetNumber())
	if err := f.revalidate(ctx, in); err != nil {
		return nil, err // the client says that it has not opened it
	}
	if in, err = f.OwnInode(ctx, objcache.Ino(r.GetIno())); err != nil {
		return nil, err
	}
	reply := attrReply(in)
	reply.GetAttr().Locked, err = f.Group.FileLocked(objcache.Ino(r.GetIno()))
	return reply, err
}

// revalidate asks the directory of a clean file for a fresh look at external storage, if the TTL wants one.
func (f *FS) revalidate(ctx context.Context, in *record.Inode) error {
	if meta.Owes(in) || len(in.GetLinks()) != 1 || in.GetBase() == nil {
		return nil
	}
	l := in.GetLinks()[0]
	_, err := f.Peers.Call(ctx, ring.HashInode(objcache.Ino(l.GetDir())), &rpc.Request{
		Op: &rpc.Request_Lookup{Lookup: &rpc.LookupRequest{Dir: l.GetDir(), Name: l.GetName()}},
	})
	switch objcache.KindOf(err) {
	case objcache.NotExist, objcache.Stale, objcache.NotDir: // renamed or removed meanwhile: what was opened stays open
		return nil
	}
	return err
}

// Flush commits staged bytes, size and time of a file in one transaction.
func (f *FS) Flush(ctx context.Context, h *rpc.Header, r *rpc.FlushRequest) (*rpc.Reply, error) {
	placed, extents, err := f.placeInline(ctx, r)
	if err != nil {
		return nil, err
	}
	reply, err := again(ctx, func() (*rpc.Reply, error) {
		in, err := f.OwnInode(ctx, objcache.Ino(r.GetIno()))
		if err != nil {
			return nil, err
		}
		if r.GetSize() > objcache.MaxFileSize {
			return nil, objcache.Errorf(objcache.TooLarge, "size %d", r.GetSize())
		}
		if v := r.GetIfVersion(); v != 0 && v != in.GetVersion() {
			return nil, objcache.Errorf(objcache.Precondition, "inode %d is at version %d, not %d", r.GetIno(), in.GetVersion(), v)
		}
		steps := []*rpc.Step{{Step: &rpc.Step_FlushInode{FlushInode: &rpc.FlushInode{
			Ino: r.GetIno(), Generation: r.GetGeneration(), Size: r.GetSize(), Mtime: r.GetMtime(), Version: in.GetVersion(), Now: r.GetNow(),
		}}}}
		own := &rpc.CommitChunk{Ino: r.GetIno(), Client: h.GetClient(), Version: in.GetVersion() + 1}
		used := len(extents) > 0 || len(r.GetInline()) > 0 && len(placed) == 0
		if len(placed) == 0 {
			own.Inline = r.GetInline()
		}
		own.Extents = extents
		for _, c := range r.GetChunks() {
			if c.GetChunk() == 0 && used {
				own.First, own.Seq = c.GetFirst(), c.GetSeq()
				continue
			}
			steps = append(steps, &rpc.Step{Step: &rpc.Step_CommitChunk{CommitChunk: &rpc.CommitChunk{
				Ino: r.GetIno(), Chunk: c.GetChunk(), Client: h.GetClient(), First: c.GetFirst(), Seq: c.GetSeq(), Version: in.GetVersion() + 1,
			}}})
		}
		if used {
			steps = append(steps, &rpc.Step{Step: &rpc.Step_CommitChunk{CommitChunk: own}})
		}
		f.nameGroups(steps)
		if err := f.Group.SyncFor(ctx, steps); err != nil {
			return nil, err
		}
		return f.Group.Transact(ctx, group.Tx{Header: h, Steps: steps, Placed: placed, Reply: attrAfter(r.GetIno())})
	})
	if err != nil && objcache.KindOf(err) != objcache.Unavailable { // of an unknown outcome the next start frees what is dead
		f.Group.FreePlaced(placed)
	}
	return reply, err
}

// placeInline writes the bytes that came with a flush, all of chunk 0, to disk, unless they are few enough to live in the row.
func (f *FS) placeInline(ctx context.Context, r *rpc.FlushRequest) (placed []*record.Placed, extents [][]byte, err error) {
	small := r.GetSize() <= objcache.InlineSize
	for _, w := range r.GetInline() {
		if w.GetChunk() != 0 {
			return nil, nil, objcache.Errorf(objcache.Invalid, "inline write to chunk %d", w.GetChunk())
		}
		small = small && w.GetOff()+int64(len(w.GetData())) <= objcache.InlineSize
	}
	if small || len(r.GetInline()) == 0 {
		return nil, nil, nil
	}
	for _, w := range r.GetInline() {
		x, pl, err := f.Group.WriteExtent(ctx, objcache.ChunkKey{Ino: objcache.Ino(r.GetIno())}, w.GetOff(), w.GetData())
		if err != nil {
			f.Group.FreePlaced(placed)
			return nil, nil, err
		}
		placed = append(placed, pl)
		b, err := encode(x)
		if err != nil {
			f.Group.FreePlaced(placed)
			return nil, nil, err
		}
		extents = append(extents, b)
	}
	if err := f.Group.Sync(ctx); err != nil {
		f.Group.FreePlaced(placed)
		return nil, nil, err
	}
	return placed, extents, nil
}

// Append adds bytes at the end of a file: the end is read, the bytes staged behind it and both committed only if it is still the end.
func (f *FS) Append(ctx context.Context, h *rpc.Header, r *rpc.AppendRequest) (*rpc.Reply, error) {
	return again(ctx, func() (*rpc.Reply, error) {
		in, err := f.OwnInode(ctx, objcache.Ino(r.GetIno()))
		if err != nil {
			return nil, err
		}
		if in.GetMode()&objcache.ModeMask != objcache.ModeRegular {
			return nil, objcache.Errorf(objcache.Invalid, "inode %d is no regular file", r.GetIno())
		}
		off, version := in.GetSize(), in.GetVersion()+1
		if off+int64(len(r.GetData())) > objcache.MaxFileSize {
			return nil, objcache.Errorf(objcache.TooLarge, "size %d", off)
		}
		steps := []*rpc.Step{{Step: &rpc.Step_FlushInode{FlushInode: &rpc.FlushInode{
			Ino: r.GetIno(), Generation: in.GetGeneration(), Size: off + int64(len(r.GetData())), Mtime: r.GetMtime(), Version: in.GetVersion(), Now: r.GetMtime(),
		}}}}
		staged, err := f.stageAppend(ctx, in, h, r.GetData(), version)
		if err != nil {
			return nil, err
		}
		steps = append(steps, staged...)
		f.nameGroups(steps)
		if err := f.Group.SyncFor(ctx, steps); err != nil {
			return nil, err
		}
		return f.Group.Transact(ctx, group.Tx{Header: h, Steps: steps, Reply: func(rd meta.Reader) (*rpc.Reply, error) {
			after, err := attrAfter(r.GetIno())(rd)
			if err != nil {
				return nil, err
			}
			return &rpc.Reply{Result: &rpc.Reply_Append{Append: &rpc.AppendReply{Off: off, Attr: after.GetAttr().GetAttr()}}}, nil
		}})
	})
}

// stageAppend stages the pieces of an append at the owners of their chunks, under a client id of its own for this attempt.
func (f *FS) stageAppend(ctx context.Context, in *record.Inode, h *rpc.Header, data []byte, version uint64) ([]*rpc.Step, error) {
	client := f.Group.PrivateClient()
	var steps []*rpc.Step
	for off := in.GetSize(); len(data) > 0; {
		k := objcache.ChunkKey{Ino: objcache.Ino(in.GetIno()), Index: objcache.ChunkOf(off)}
		n := min(int64(len(data)), k.Offset()+objcache.ChunkSize-off)
		req := &rpc.StageRequest{Ino: in.GetIno(), Chunk: k.Index, Generation: in.GetGeneration(), Seq: 1, Off: off - k.Offset(), Data: data[:n]}
		hash := ring.HashChunk(k)
		if f.Group.Owns(hash) {
			if err := f.Group.Stage(ctx, client, req); err != nil {
				return nil, err
			}
		} else if _, err := f.Peers.Call(ctx, hash, &rpc.Request{Header: &rpc.Header{Client: uint64(client), Start: h.GetStart(), Internal: true}, Op: &rpc.Request_Stage{Stage: req}}); err != nil {
			return nil, err
		}
		steps = append(steps, &rpc.Step{Step: &rpc.Step_CommitChunk{CommitChunk: &rpc.CommitChunk{
			Ino: in.GetIno(), Chunk: k.Index, Client: uint64(client), First: 1, Seq: 1, Version: version,
		}}})
		data, off = data[n:], off+n
	}
	return steps, nil
}

// nameGroups tells the inode's step which other groups change chunks with it. The first step is the inode's.
func (f *FS) nameGroups(steps []*rpc.Step) {
	v := f.View()
	fl := steps[0].GetFlushInode()
	for _, s := range steps[1:] {
		to := &fl.Groups
		if s.GetCutChunks() != nil {
			to = &fl.CutGroups
		}
		if g := uint32(meta.Owner(v, s)); g != uint32(f.Group.ID()) && !slices.Contains(*to, g) {
			*to = append(*to, g)
		}
	}
}
