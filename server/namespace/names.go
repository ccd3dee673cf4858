package namespace

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/group"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
	"github.com/objcache/objcache/server/ring"
)

// largeDir is the number of entries from which on new files of a directory are spread over all groups.
const largeDir = 4096

func encode(m proto.Message) ([]byte, error) {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", m, err)
	}
	return b, nil
}

func checkName(dir *record.Inode, name string) error {
	switch {
	case dir.GetIno() == uint64(objcache.RootIno):
		return objcache.Errorf(objcache.NotPermitted, "name %q: the root holds bucket directories only", name)
	case name == meta.HiddenDir && len(dir.GetLinks()) == 1 && dir.GetLinks()[0].GetDir() == uint64(objcache.RootIno):
		return objcache.Errorf(objcache.NotPermitted, "name %q is reserved at the top of a bucket", name)
	case len(name) > maxName:
		return objcache.Errorf(objcache.NameTooLong, "name of %d bytes", len(name))
	case len(dir.GetDir().GetPrefix())+len(name)+1 > maxKey:
		return objcache.Errorf(objcache.NameTooLong, "key of more than %d bytes", maxKey)
	}
	return nil
}

// entry finds a live name of a directory of this group; row is nil if there is none.
func (f *FS) entry(ctx context.Context, dir *record.Inode, name string) (*record.DirEntry, error) {
	if dir.GetIno() == uint64(objcache.RootIno) {
		for _, b := range f.Buckets {
			if b == name {
				return &record.DirEntry{Ino: uint64(meta.BucketIno(b)), Mode: objcache.ModeDir}, nil
			}
		}
		return nil, nil
	}
	if len(name) > maxName {
		return nil, objcache.Errorf(objcache.NameTooLong, "name of %d bytes", len(name))
	}
	if err := f.Loader.Ready(ctx, dir, name); err != nil {
		return nil, err
	}
	if err := f.Group.WaitDecided(ctx, meta.LockInode(dir.GetIno())); err != nil {
		return nil, err
	}
	row, err := meta.Entry(f.Group.DB(), objcache.Ino(dir.GetIno()), name)
	if err != nil || row.GetIno() == 0 {
		return nil, err
	}
	return row, nil
}

// Lookup finds a name and its inode's attributes.
func (f *FS) Lookup(ctx context.Context, r *rpc.LookupRequest) (*rpc.Reply, error) {
	for {
		dir, err := f.directory(ctx, objcache.Ino(r.GetDir()))
		if err != nil {
			return nil, err
		}
		row, err := f.entry(ctx, dir, r.GetName())
		if err != nil {
			return nil, err
		}
		if row == nil {
			return nil, objcache.Errorf(objcache.NotExist, "name %q in directory %d", r.GetName(), r.GetDir())
		}
		in, err := f.Inode(ctx, objcache.Ino(row.GetIno()))
		switch objcache.KindOf(err) {
		case objcache.Stale, objcache.NotExist: // unlinked in between: look again
			if now, rerr := meta.Entry(f.Group.DB(), objcache.Ino(r.GetDir()), r.GetName()); rerr == nil && now.GetIno() == row.GetIno() {
				return nil, err
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		return attrReply(in), nil
	}
}

// Readdir lists names behind a cookie, with attributes.
func (f *FS) Readdir(ctx context.Context, r *rpc.ReaddirRequest) (*rpc.Reply, error) {
	dir, err := f.OwnInode(ctx, objcache.Ino(r.GetDir()))
	if err != nil {
		return nil, err
	}
	if dir.GetMode()&objcache.ModeMask != objcache.ModeDir {
		return nil, objcache.Errorf(objcache.NotDir, "inode %d", r.GetDir())
	}
	out := &rpc.ReaddirReply{Eof: true}
	rows := map[int]uint64{}
	limit := min(max(int(r.GetLimit()), 1), 4096)
	add := func(name string, cookie, ino uint64) bool {
		if len(out.GetEntries()) == limit {
			out.Eof = false
			return false
		}
		rows[len(out.GetEntries())] = ino
		out.Entries = append(out.Entries, &rpc.DirEntry{Name: name, Cookie: cookie})
		return true
	}
	switch {
	case dir.GetDead():
	case dir.GetIno() == uint64(objcache.RootIno):
		for i := int(r.GetCookie()); i < len(f.Buckets); i++ {
			if !add(f.Buckets[i], uint64(i)+1, uint64(meta.BucketIno(f.Buckets[i]))) {
				break
			}
		}
	default:
		if err := f.Loader.Ready(ctx, dir, ""); err != nil {
			return nil, err
		}
		// Positions and entries are of one moment, or a file that is being renamed would be seen under neither name.
		now := f.Group.DB().NewSnapshot()
		err := meta.ScanCookies(now, objcache.Ino(r.GetDir()), r.GetCookie(), func(name string, row *record.DirEntry) (bool, error) {
			return add(name, row.GetCookie(), row.GetIno()), nil
		})
		if err := errors.Join(err, now.Close()); err != nil {
			return nil, err
		}
	}
	if err := f.fillAttrs(ctx, out, rows); err != nil {
		return nil, err
	}
	return &rpc.Reply{Result: &rpc.Reply_Readdir{Readdir: out}}, nil
}

// fillAttrs adds the attributes; names whose inode went away meanwhile are left out.
func (f *FS) fillAttrs(ctx context.Context, out *rpc.ReaddirReply, inos map[int]uint64) error {
	kept := out.GetEntries()[:0]
	for i, e := range out.GetEntries() {
		in, err := f.Inode(ctx, objcache.Ino(inos[i]))
		switch objcache.KindOf(err) {
		case objcache.Stale, objcache.NotExist:
			continue
		}
		if err != nil {
			return err
		}
		e.Attr = Attr(in)
		kept = append(kept, e)
	}
	out.Entries = kept
	return nil
}

// Create makes a file, directory, symlink or special file.
func (f *FS) Create(ctx context.Context, h *rpc.Header, r *rpc.CreateRequest) (*rpc.Reply, error) {
	return again(ctx, func() (*rpc.Reply, error) {
		dir, err := f.directory(ctx, objcache.Ino(r.GetDir()))
		if err != nil {
			return nil, err
		}
		if err := checkName(dir, r.GetName()); err != nil {
			return nil, err
		}
		row, err := f.entry(ctx, dir, r.GetName())
		if err != nil {
			return nil, err
		}
		if row != nil {
			return nil, objcache.Errorf(objcache.Exist, "name %q in directory %d", r.GetName(), r.GetDir())
		}
		isDir := r.GetMode()&objcache.ModeMask == objcache.ModeDir
		ino, err := f.Group.AllocateIno(!isDir && dir.GetDir().GetChildren() < largeDir)
		if err != nil {
			return nil, err
		}
		in := newInode(dir, r, ino)
		v, err := encode(in)
		if err != nil {
			return nil, err
		}
		prefix := ""
		if isDir {
			prefix = dir.GetDir().GetPrefix()
		}
		opened := r.GetOpen() && f.Group.Owns(ring.HashInode(ino))
		return f.Group.Transact(ctx, group.Tx{
			Header: h,
			Steps: []*rpc.Step{
				{Step: &rpc.Step_AddEntry{AddEntry: &rpc.AddEntry{Dir: r.GetDir(), Name: r.GetName(), Ino: uint64(ino), Mode: in.GetMode(), Now: r.GetNow(), Prefix: prefix}}},
				{Step: &rpc.Step_PutInode{PutInode: &rpc.PutInode{Inode: v}}},
			},
			Reply: func(meta.Reader) (*rpc.Reply, error) {
				reply := attrReply(in)
				reply.GetAttr().Opened = opened
				return reply, nil
			},
			Then: func() { // still under the locks: nobody can unlink the file before its open counts
				if opened {
					f.Group.Opened(objcache.ClientID(h.GetClient()), ino, r.GetNumber())
				}
			},
		})
	})
}

func newInode(dir *record.Inode, r *rpc.CreateRequest, ino objcache.Ino) *record.Inode {
	const setgid = 0o2000
	in := &record.Inode{
		Ino: uint64(ino), Mode: r.GetMode() & (objcache.ModeMask | 0o7777), Nlink: 1, Uid: r.GetUid(), Gid: r.GetGid(), Rdev: r.GetRdev(),
		Atime: r.GetNow(), Mtime: r.GetNow(), Ctime: r.GetNow(), Target: r.GetTarget(), Version: 1, Bucket: dir.GetBucket(),
		Links: []*record.Link{{Dir: r.GetDir(), Name: r.GetName()}}, Dirty: true, Size: int64(len(r.GetTarget())),
	}
	if dir.GetMode()&setgid != 0 {
		in.Gid = dir.GetGid()
	}
	if in.GetMode()&objcache.ModeMask == objcache.ModeDir {
		in.Nlink = 2
		in.Mode |= dir.GetMode() & setgid
		in.Dir = &record.DirState{Complete: true, LoadedAt: r.GetNow(), Prefix: dir.GetDir().GetPrefix() + r.GetName() + "/"}
	}
	return in
}

// debt is what an inode owes external storage for a name that is taken from it; nil when nothing ever stood there.
func debt(in *record.Inode, dir uint64, name string) *rpc.Debt {
	if in.GetMode()&objcache.ModeMask == objcache.ModeDir {
		return &rpc.Debt{Ino: in.GetIno(), Dir: true}
	}
	for _, l := range in.GetLinks() {
		if l.GetDir() == dir && l.GetName() == name {
			return meta.DebtOf(in, l)
		}
	}
	return nil
}

// Remove is unlink and rmdir.
func (f *FS) Remove(ctx context.Context, h *rpc.Header, r *rpc.RemoveRequest) (*rpc.Reply, error) {
	return again(ctx, func() (*rpc.Reply, error) {
		dir, err := f.directory(ctx, objcache.Ino(r.GetDir()))
		if err != nil {
			return nil, err
		}
		row, err := f.entry(ctx, dir, r.GetName())
		if err != nil {
			return nil, err
		}
		isDir := row.GetMode()&objcache.ModeMask == objcache.ModeDir
		switch {
		case row == nil:
			return nil, objcache.Errorf(objcache.NotExist, "name %q in directory %d", r.GetName(), r.GetDir())
		case r.GetDir() == uint64(objcache.RootIno):
			return nil, objcache.Errorf(objcache.NotPermitted, "%q is a bucket", r.GetName())
		case r.GetDirectory() && !isDir:
			return nil, objcache.Errorf(objcache.NotDir, "%q", r.GetName())
		case !r.GetDirectory() && isDir:
			return nil, objcache.Errorf(objcache.IsDir, "%q", r.GetName())
		}
		in, last, err := f.dropName(ctx, row.GetIno(), r.GetDir(), r.GetName(), r.GetNow())
		if err != nil {
			return nil, err
		}
		return f.Group.Transact(ctx, group.Tx{Header: h, Steps: []*rpc.Step{
			{Step: &rpc.Step_RemoveEntry{RemoveEntry: &rpc.RemoveEntry{
				Dir: r.GetDir(), Name: r.GetName(), Expect: row.GetIno(), Now: r.GetNow(), Debt: debt(in, r.GetDir(), r.GetName()),
			}}},
			last,
		}})
	})
}

// dropName is the step that takes a name from an inode; for a directory, which must be empty, its last.
func (f *FS) dropName(ctx context.Context, ino, dir uint64, name string, now int64) (*record.Inode, *rpc.Step, error) {
	in, err := f.Inode(ctx, objcache.Ino(ino))
	if k := objcache.KindOf(err); k == objcache.Stale || k == objcache.NotExist {
		return nil, nil, objcache.Errorf(objcache.Conflict, "inode %d: %w", ino, err)
	}
	if err != nil {
		return nil, nil, err
	}
	if in.GetMode()&objcache.ModeMask != objcache.ModeDir {
		return in, &rpc.Step{Step: &rpc.Step_Relink{Relink: &rpc.Relink{
			Ino: ino, DelDir: dir, DelName: name, Now: now, Owed: debt(in, dir, name),
		}}}, nil
	}
	// Listing loads it; most directories that are not empty are refused here already.
	list, err := f.Peers.Call(ctx, ring.HashInode(objcache.Ino(ino)), &rpc.Request{Op: &rpc.Request_Readdir{Readdir: &rpc.ReaddirRequest{Dir: ino, Limit: 1}}})
	if err != nil {
		return nil, nil, err
	}
	if len(list.GetReaddir().GetEntries()) > 0 {
		return nil, nil, objcache.Errorf(objcache.NotEmpty, "directory %d", ino)
	}
	return in, &rpc.Step{Step: &rpc.Step_KillDir{KillDir: &rpc.KillDir{Ino: ino, Now: now}}}, nil
}

// Link gives a file one more name.
func (f *FS) Link(ctx context.Context, h *rpc.Header, r *rpc.LinkRequest) (*rpc.Reply, error) {
	return again(ctx, func() (*rpc.Reply, error) {
		dir, err := f.directory(ctx, objcache.Ino(r.GetDir()))
		if err != nil {
			return nil, err
		}
		if err := checkName(dir, r.GetName()); err != nil {
			return nil, err
		}
		in, err := f.Inode(ctx, objcache.Ino(r.GetIno()))
		if err != nil {
			return nil, err
		}
		switch {
		case in.GetMode()&objcache.ModeMask == objcache.ModeDir:
			return nil, objcache.Errorf(objcache.NotPermitted, "hard link to directory %d", r.GetIno())
		case in.GetNlink() == 0:
			return nil, objcache.Errorf(objcache.NotExist, "inode %d has no name any more", r.GetIno())
		case in.GetBucket() != dir.GetBucket():
			return nil, objcache.Errorf(objcache.CrossDevice, "from bucket %q to %q", in.GetBucket(), dir.GetBucket())
		}
		row, err := f.entry(ctx, dir, r.GetName())
		if err != nil {
			return nil, err
		}
		if row != nil {
			return nil, objcache.Errorf(objcache.Exist, "name %q in directory %d", r.GetName(), r.GetDir())
		}
		in.Nlink++
		in.Ctime = max(in.GetCtime(), r.GetNow())
		return f.Group.Transact(ctx, group.Tx{
			Header: h,
			Steps: []*rpc.Step{
				{Step: &rpc.Step_AddEntry{AddEntry: &rpc.AddEntry{Dir: r.GetDir(), Name: r.GetName(), Ino: r.GetIno(), Mode: in.GetMode(), Now: r.GetNow()}}},
				{Step: &rpc.Step_Relink{Relink: &rpc.Relink{Ino: r.GetIno(), AddDir: r.GetDir(), AddName: r.GetName(), Now: r.GetNow()}}},
			},
			Reply: func(meta.Reader) (*rpc.Reply, error) { return attrReply(in), nil },
		})
	})
}
