package namespace

import (
	"context"
	"maps"
	"slices"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/group"
	"github.com/objcache/objcache/server/record"
)

// Getattr returns an inode's attributes.
func (f *FS) Getattr(ctx context.Context, ino uint64) (*rpc.Reply, error) {
	in, err := f.OwnInode(ctx, objcache.Ino(ino))
	if err != nil {
		return nil, err
	}
	if in.GetDead() {
		return nil, objcache.Errorf(objcache.Stale, "inode %d", ino)
	}
	return attrReply(in), nil
}

// Inspect returns an inode with what only servers need to know, also when it waits only for external storage.
func (f *FS) Inspect(ctx context.Context, ino uint64) (*rpc.Reply, error) {
	in, err := f.OwnInode(ctx, objcache.Ino(ino))
	if err != nil {
		return nil, err
	}
	v, err := encode(in)
	if err != nil {
		return nil, err
	}
	return &rpc.Reply{Result: &rpc.Reply_Inspect{Inspect: &rpc.InspectReply{Inode: v}}}, nil
}

// Setattr changes attributes; a size is a transaction with the owners of the chunks behind it.
func (f *FS) Setattr(ctx context.Context, h *rpc.Header, r *rpc.SetattrRequest) (*rpc.Reply, error) {
	if r.GetIno() == uint64(objcache.RootIno) {
		return nil, objcache.Errorf(objcache.NotPermitted, "the root")
	}
	return again(ctx, func() (*rpc.Reply, error) {
		var steps []*rpc.Step
		if r.Size != nil {
			in, err := f.OwnInode(ctx, objcache.Ino(r.GetIno()))
			if err != nil {
				return nil, err
			}
			if steps, err = f.truncation(in, r); err != nil {
				return nil, err
			}
		}
		if r.Size == nil || r.Mode != nil || r.Uid != nil || r.Gid != nil || r.Atime != nil || r.Mtime != nil {
			steps = append(steps, &rpc.Step{Step: &rpc.Step_SetInode{SetInode: &rpc.SetInode{Ino: r.GetIno(), Set: r}}})
		}
		return f.Group.Transact(ctx, group.Tx{Header: h, Steps: steps, Reply: attrAfter(r.GetIno())})
	})
}

// truncation makes a file exactly r.Size long.
func (f *FS) truncation(in *record.Inode, r *rpc.SetattrRequest) ([]*rpc.Step, error) {
	switch {
	case isDir(in):
		return nil, objcache.Errorf(objcache.IsDir, "inode %d", in.GetIno())
	case r.GetSize() < 0:
		return nil, objcache.Errorf(objcache.Invalid, "size %d", r.GetSize())
	case r.GetSize() > objcache.MaxFileSize:
		return nil, objcache.Errorf(objcache.TooLarge, "size %d", r.GetSize())
	}
	steps := []*rpc.Step{{Step: &rpc.Step_FlushInode{FlushInode: &rpc.FlushInode{
		Ino: in.GetIno(), Generation: in.GetGeneration(), Size: r.GetSize(), Mtime: r.GetNow(), Version: in.GetVersion(), Now: r.GetNow(),
		Truncate: true, KillPriv: r.GetKillPriv(),
	}}}}
	if r.GetSize() >= in.GetSize() {
		return steps, nil
	}
	v := f.View()
	seen := map[objcache.GroupID]bool{}
	for i := objcache.ChunkOf(r.GetSize()); i <= objcache.ChunkOf(in.GetSize()-1); i++ {
		g := v.OwnerOfChunk(objcache.ChunkKey{Ino: objcache.Ino(in.GetIno()), Index: i})
		if seen[g] {
			continue
		}
		seen[g] = true
		steps = append(steps, &rpc.Step{Step: &rpc.Step_CutChunks{CutChunks: &rpc.CutChunks{
			Ino: in.GetIno(), Cut: r.GetSize(), OldSize: in.GetSize(), Version: in.GetVersion() + 1, Group: uint32(g),
		}}})
	}
	f.nameGroups(steps)
	return steps, nil
}

// Xattr reads and changes extended attributes.
func (f *FS) Xattr(ctx context.Context, h *rpc.Header, r *rpc.XattrRequest) (*rpc.Reply, error) {
	in, err := f.OwnInode(ctx, objcache.Ino(r.GetIno()))
	if err != nil {
		return nil, err
	}
	switch r.GetVerb() {
	case rpc.XattrRequest_GET:
		v, ok := in.GetXattrs()[r.GetName()]
		if !ok {
			return nil, objcache.Errorf(objcache.NoAttr, "attribute %q of inode %d", r.GetName(), r.GetIno())
		}
		return &rpc.Reply{Result: &rpc.Reply_Xattr{Xattr: &rpc.XattrReply{Value: v}}}, nil
	case rpc.XattrRequest_LIST:
		return &rpc.Reply{Result: &rpc.Reply_Xattr{Xattr: &rpc.XattrReply{Names: slices.Sorted(maps.Keys(in.GetXattrs()))}}}, nil
	}
	if r.GetIno() == uint64(objcache.RootIno) {
		return nil, objcache.Errorf(objcache.NotPermitted, "the root")
	}
	return again(ctx, func() (*rpc.Reply, error) {
		return f.Group.Transact(ctx, group.Tx{
			Header: h, Steps: []*rpc.Step{{Step: &rpc.Step_SetInode{SetInode: &rpc.SetInode{Ino: r.GetIno(), Xattr: r}}}},
		})
	})
}
