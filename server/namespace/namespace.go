// Package namespace turns the operations of a filesystem into transactions: which steps at which owners make a create, a rename or a
// flush. It promises POSIX's rules for names and sizes, each operation atomic. It does not know how transactions commit (group), how
// a call reached it (rpc), or how names and bytes come from and go to external storage (transfer).
package namespace

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/group"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
	"github.com/objcache/objcache/server/ring"
)

// Peers asks the owner of a place on the ring, which may be this server. It retries what is transient until ctx ends.
type Peers interface {
	Call(ctx context.Context, hash uint64, r *rpc.Request) (*rpc.Reply, error)
}

// Loader brings names from external storage; package transfer implements it.
type Loader interface {
	// Ready returns when the rows of a directory of this group can answer for a name (for all names, if it is ""), as new as the
	// configured TTL demands.
	Ready(ctx context.Context, dir *record.Inode, name string) error
}

// FS carries out operations whose main inode one group owns.
type FS struct {
	Group    *group.Group
	Peers    Peers
	Loader   Loader
	View     func() *ring.View
	Buckets  []string // dirNames
	Defaults meta.Defaults
	Logger   *slog.Logger
	Started  time.Time
}

// maxName is the longest name, maxKey the longest key of external storage, in bytes.
const (
	maxName = 255
	maxKey  = 1024
)

// again runs f until it ends with something else than a Conflict, with growing random pauses. f must be a whole operation from its first read.
func again(ctx context.Context, f func() (*rpc.Reply, error)) (*rpc.Reply, error) {
	pause := time.Millisecond
	for {
		r, err := f()
		if err == nil || !errors.Is(err, objcache.Conflict) {
			return r, err
		}
		t := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, objcache.Errorf(objcache.KindOf(ctx.Err()), "%w", errors.Join(err, ctx.Err()))
		}
		pause = min(2*pause, 100*time.Millisecond)
	}
}

// Inode reads an inode wherever it lives, after every commit it may be part of. NotExist when it is gone.
func (f *FS) Inode(ctx context.Context, ino objcache.Ino) (*record.Inode, error) {
	h := ring.HashInode(ino)
	if !f.Group.Owns(h) {
		r, err := f.Peers.Call(ctx, h, &rpc.Request{Op: &rpc.Request_Inspect{Inspect: &rpc.InspectRequest{Ino: uint64(ino)}}})
		if err != nil {
			return nil, err
		}
		return meta.DecodeInode(r.GetInspect().GetInode())
	}
	return f.OwnInode(ctx, ino)
}

// OwnInode reads an inode of this group. NotExist when it is gone for good, or waits only for external storage.
func (f *FS) OwnInode(ctx context.Context, ino objcache.Ino) (*record.Inode, error) {
	if err := f.Group.WaitDecided(ctx, meta.LockInode(uint64(ino))); err != nil {
		return nil, err
	}
	in, err := meta.Inode(f.Group.DB(), ino)
	if err != nil {
		return nil, err
	}
	if in == nil {
		if in = f.implied(ino); in == nil {
			return nil, objcache.Errorf(objcache.Stale, "inode %d", ino)
		}
	}
	return in, nil
}

// directory reads a directory of this group.
func (f *FS) directory(ctx context.Context, ino objcache.Ino) (*record.Inode, error) {
	in, err := f.OwnInode(ctx, ino)
	if err != nil {
		return nil, err
	}
	if in.GetMode()&objcache.ModeMask != objcache.ModeDir {
		return nil, objcache.Errorf(objcache.NotDir, "inode %d", ino)
	}
	if in.GetDead() {
		return nil, objcache.Errorf(objcache.NotExist, "directory %d", ino)
	}
	return in, nil
}

// implied makes the root, which exists without a row.
func (f *FS) implied(ino objcache.Ino) *record.Inode {
	if ino != objcache.RootIno {
		return nil
	}
	t := f.Started.UnixNano()
	return &record.Inode{
		Ino: uint64(ino), Mode: objcache.ModeDir | 0o755, Nlink: uint32(2 + len(f.Buckets)), Uid: f.Defaults.UID, Gid: f.Defaults.GID,
		Atime: t, Mtime: t, Ctime: t, Version: 1, Dir: &record.DirState{Complete: true},
	}
}

// MakeBuckets gives the bucket directories of this group their rows; again at every start.
func (f *FS) MakeBuckets(ctx context.Context, now int64) error {
	for _, b := range f.Buckets {
		ino := meta.BucketIno(b)
		if !f.Group.Owns(ring.HashInode(ino)) {
			continue
		}
		old, err := meta.Inode(f.Group.DB(), ino)
		if err != nil {
			return err
		}
		if old != nil {
			continue
		}
		v, err := encode(&record.Inode{
			Ino: uint64(ino), Mode: objcache.ModeDir | f.Defaults.DirMode, Nlink: 2, Uid: f.Defaults.UID, Gid: f.Defaults.GID,
			Atime: now, Mtime: now, Ctime: now, Version: 1, Bucket: b, Dir: &record.DirState{},
			Links: []*record.Link{{Dir: uint64(objcache.RootIno), Name: b}}, DefaultAttrs: true,
		})
		if err != nil {
			return err
		}
		tx := group.Tx{Header: &rpc.Header{}, Steps: []*rpc.Step{{Step: &rpc.Step_PutInode{PutInode: &rpc.PutInode{Inode: v}}}}}
		if _, err := f.Group.Transact(ctx, tx); err != nil {
			return err
		}
	}
	return nil
}

// Attr is what stat shows of an inode.
func Attr(in *record.Inode) *rpc.Attr {
	return &rpc.Attr{
		Ino: in.GetIno(), Mode: in.GetMode(), Nlink: in.GetNlink(), Uid: in.GetUid(), Gid: in.GetGid(), Rdev: in.GetRdev(), Size: in.GetSize(),
		Atime: in.GetAtime(), Mtime: in.GetMtime(), Ctime: in.GetCtime(), Version: in.GetVersion(), Target: in.GetTarget(),
		Generation: in.GetGeneration(),
	}
}

func attrReply(in *record.Inode) *rpc.Reply {
	return &rpc.Reply{Result: &rpc.Reply_Attr{Attr: &rpc.AttrReply{Attr: Attr(in)}}}
}

// attrAfter is the reply of a transaction that changes an inode of the coordinator's own.
func attrAfter(ino uint64) func(meta.Reader) (*rpc.Reply, error) {
	return func(r meta.Reader) (*rpc.Reply, error) {
		in, err := meta.Inode(r, objcache.Ino(ino))
		if err != nil {
			return nil, err
		}
		return attrReply(in), nil
	}
}
