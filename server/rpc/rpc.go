// Package rpc answers calls: each handler checks who owns the key, makes sure that a request takes effect once, and passes it on. It promises
// that every error leaves with its kind. It holds no state of its own.
package rpc

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/failpoint"
	"github.com/objcache/objcache/server/group"
	"github.com/objcache/objcache/server/namespace"
	"github.com/objcache/objcache/server/restore"
	"github.com/objcache/objcache/server/ring"
	"github.com/objcache/objcache/server/transfer"
)

// Files answers mounts and other servers for one group.
type Files struct {
	rpc.UnimplementedFilesServer
	Group    *group.Group
	FS       *namespace.FS
	Transfer *transfer.Transfer
	Restore  *restore.Restore
}

// Call answers one request. Errors of an operation travel in the reply.
func (f *Files) Call(ctx context.Context, r *rpc.Request) (*rpc.Reply, error) {
	reply := f.Local(ctx, r)
	failpoint.Hit(failpoint.ReplyBefore)
	rpc.Recycle(r) // staged bytes are on the disk, or refused
	return reply, nil
}

// Local is Call for this process.
func (f *Files) Local(ctx context.Context, r *rpc.Request) *rpc.Reply {
	reply, err := f.owned(ctx, r)
	if err != nil {
		return &rpc.Reply{Failure: rpc.FailureOf(err)}
	}
	return reply
}

func (f *Files) owned(ctx context.Context, r *rpc.Request) (*rpc.Reply, error) {
	if h, ok := keyOf(r); ok && !f.Group.Owns(h) {
		return nil, objcache.Errorf(objcache.NotOwner, "group %d", f.Group.ID())
	}
	if err := f.admit(ctx, r); err != nil {
		return nil, err
	}
	return f.Group.Once(ctx, r.GetHeader(), func() (*rpc.Reply, error) { return f.dispatch(ctx, r) })
}

// keyOf is the place on the ring whose owner must answer.
func keyOf(r *rpc.Request) (uint64, bool) {
	inode := func(ino uint64) (uint64, bool) { return ring.HashInode(objcache.Ino(ino)), true }
	switch x := r.GetOp().(type) {
	case *rpc.Request_Lookup:
		return inode(x.Lookup.GetDir())
	case *rpc.Request_Readdir:
		return inode(x.Readdir.GetDir())
	case *rpc.Request_Getattr:
		return inode(x.Getattr.GetIno())
	case *rpc.Request_Setattr:
		return inode(x.Setattr.GetIno())
	case *rpc.Request_Create:
		return inode(x.Create.GetDir())
	case *rpc.Request_Remove:
		return inode(x.Remove.GetDir())
	case *rpc.Request_Rename:
		return inode(x.Rename.GetDir())
	case *rpc.Request_Link:
		return inode(x.Link.GetDir())
	case *rpc.Request_Xattr:
		return inode(x.Xattr.GetIno())
	case *rpc.Request_Open:
		return inode(x.Open.GetIno())
	case *rpc.Request_Flush:
		return inode(x.Flush.GetIno())
	case *rpc.Request_Append:
		return inode(x.Append.GetIno())
	case *rpc.Request_Refresh:
		return inode(x.Refresh.GetIno())
	case *rpc.Request_Inspect:
		return inode(x.Inspect.GetIno())
	case *rpc.Request_Persist:
		return inode(x.Persist.GetIno())
	case *rpc.Request_Path:
		return inode(x.Path.GetIno())
	case *rpc.Request_Standing:
		return inode(x.Standing.GetIno())
	case *rpc.Request_Lose:
		return inode(x.Lose.GetIno())
	case *rpc.Request_Lock:
		return inode(x.Lock.GetIno())
	case *rpc.Request_Session:
		return ring.HashClient(objcache.ClientID(x.Session.GetClient())), true
	}
	return 0, false // chunk requests check for themselves; renew and release go to whoever they are sent to
}

func empty(err error) (*rpc.Reply, error) {
	return &rpc.Reply{Result: &rpc.Reply_Empty{Empty: &rpc.Empty{}}}, err
}

func (f *Files) dispatch(ctx context.Context, r *rpc.Request) (*rpc.Reply, error) {
	h := r.GetHeader()
	client := objcache.ClientID(h.GetClient())
	switch x := r.GetOp().(type) {
	case *rpc.Request_Lookup:
		return f.FS.Lookup(ctx, x.Lookup)
	case *rpc.Request_Readdir:
		return f.FS.Readdir(ctx, x.Readdir)
	case *rpc.Request_Getattr:
		return f.FS.Getattr(ctx, x.Getattr.GetIno())
	case *rpc.Request_Setattr:
		return f.FS.Setattr(ctx, h, x.Setattr)
	case *rpc.Request_Create:
		return f.FS.Create(ctx, h, x.Create)
	case *rpc.Request_Remove:
		return f.FS.Remove(ctx, h, x.Remove)
	case *rpc.Request_Rename:
		return f.FS.Rename(ctx, h, x.Rename)
	case *rpc.Request_Link:
		return f.FS.Link(ctx, h, x.Link)
	case *rpc.Request_Xattr:
		return f.FS.Xattr(ctx, h, x.Xattr)
	case *rpc.Request_Open:
		return f.FS.Open(ctx, h, x.Open)
	case *rpc.Request_Release:
		f.Group.Closed(client, x.Release.GetClosed(), x.Release.GetBefore())
		return empty(nil)
	case *rpc.Request_Renew:
		f.Group.Renew(client, x.Renew.GetOpens(), x.Renew.GetBefore())
		return empty(nil)
	case *rpc.Request_Flush:
		return f.FS.Flush(ctx, h, x.Flush)
	case *rpc.Request_Append:
		return f.FS.Append(ctx, h, x.Append)
	case *rpc.Request_Inspect:
		return f.FS.Inspect(ctx, x.Inspect.GetIno())
	case *rpc.Request_Path:
		return f.FS.Path(ctx, x.Path)
	case *rpc.Request_Lock:
		return f.FS.Lock(ctx, h, x.Lock)
	case *rpc.Request_Session:
		return f.session(ctx, x.Session)
	case *rpc.Request_EndSession:
		return empty(f.Group.ApplyEnd(ctx, x.EndSession))
	case *rpc.Request_Compare:
		return empty(f.Restore.Compare(ctx, objcache.GroupID(x.Compare.GetGroup()), x.Compare.GetCause()))
	case *rpc.Request_Have:
		had, err := f.Restore.Have(ctx, x.Have)
		return &rpc.Reply{Result: &rpc.Reply_Have{Have: had}}, err
	}
	return f.bytes(ctx, r)
}

// bytes are the requests about chunks and external storage.
func (f *Files) bytes(ctx context.Context, r *rpc.Request) (*rpc.Reply, error) {
	switch x := r.GetOp().(type) {
	case *rpc.Request_Read:
		p, err := f.Transfer.Read(ctx, x.Read)
		return &rpc.Reply{Result: &rpc.Reply_Read{Read: &rpc.ReadReply{Data: p}}}, err
	case *rpc.Request_Warm:
		return empty(f.Transfer.Warm(ctx, x.Warm))
	case *rpc.Request_Stage:
		return empty(f.Group.Stage(ctx, objcache.ClientID(r.GetHeader().GetClient()), x.Stage))
	case *rpc.Request_UploadPart:
		etag, err := f.Transfer.UploadPart(ctx, x.UploadPart)
		return &rpc.Reply{Result: &rpc.Reply_UploadPart{UploadPart: &rpc.UploadPartReply{Etag: etag}}}, err
	case *rpc.Request_Persist:
		ino := objcache.Ino(x.Persist.GetIno())
		if x.Persist.GetMarker() {
			return empty(f.Transfer.Mark(ctx, ino))
		}
		if x.Persist.GetArrive() {
			return empty(f.Transfer.Arrive(ctx, ino))
		}
		return empty(f.Transfer.TryPersist(ctx, ino))
	case *rpc.Request_Standing:
		s, err := f.Transfer.Standing(ctx, objcache.Ino(x.Standing.GetIno()))
		return &rpc.Reply{Result: &rpc.Reply_Standing{Standing: s}}, err
	case *rpc.Request_Lose:
		l, err := f.Transfer.Lose(ctx, x.Lose)
		return &rpc.Reply{Result: &rpc.Reply_Lose{Lose: l}}, err
	case *rpc.Request_Refresh:
		return f.refresh(ctx, x.Refresh.GetIno())
	case *rpc.Request_Hurry:
		f.Transfer.Hurry()
		return empty(nil)
	}
	return nil, objcache.Errorf(objcache.NotSupported, "request %T", r.GetOp())
}

// refresh looks at external storage again: at a directory, or at that of a file.
func (f *Files) refresh(ctx context.Context, ino uint64) (*rpc.Reply, error) {
	in, err := f.FS.OwnInode(ctx, objcache.Ino(ino))
	if err != nil {
		return nil, err
	}
	if in.GetDir() != nil {
		return empty(f.Transfer.Refresh(ctx, in))
	}
	if len(in.GetLinks()) == 0 {
		return empty(nil)
	}
	dir := objcache.Ino(in.GetLinks()[0].GetDir())
	return f.FS.Peers.Call(ctx, ring.HashInode(dir), &rpc.Request{Op: &rpc.Request_Refresh{Refresh: &rpc.RefreshRequest{Ino: uint64(dir)}}})
}

// Work persists this server's share, with progress.
func (f *Files) Work(r *rpc.WorkRequest, s rpc.Files_WorkServer) error {
	if r.GetVerb() != rpc.WorkRequest_FLUSH {
		return status.Error(codes.Unimplemented, "only a flush of the whole share")
	}
	if f.Group.Comparing() {
		return status.Error(codes.Unavailable, comparing(f.Group.ID()).Error())
	}
	total, last := 0, time.Time{}
	err := f.Transfer.PersistShare(s.Context(), func(left int) {
		if total < left {
			total = left
		}
		if time.Since(last) < 100*time.Millisecond {
			return
		}
		last = time.Now()
		if err := s.Send(&rpc.Progress{FilesTotal: uint64(total), FilesDone: uint64(total - left)}); err != nil {
			return // the stream's context ends the work
		}
	})
	if err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	end := &rpc.Progress{FilesTotal: uint64(total), FilesDone: uint64(total), End: true}
	for ino, perr := range f.Transfer.Stuck() {
		end.Problems = append(end.Problems, &rpc.Problem{Path: f.FS.NameOf(s.Context(), ino), Error: perr.Error()})
	}
	return s.Send(end)
}

// Transactions answers other groups.
type Transactions struct {
	rpc.UnimplementedTransactionsServer
	Group *group.Group
}

// Prepare is a participant's first half.
func (t *Transactions) Prepare(ctx context.Context, r *rpc.PrepareRequest) (*rpc.PrepareReply, error) {
	reply, err := t.Group.Prepare(ctx, r)
	failpoint.Hit(failpoint.ReplyPeerBefore)
	return reply, err
}

// Decide is its second.
func (t *Transactions) Decide(ctx context.Context, r *rpc.DecideRequest) (*rpc.DecideReply, error) {
	reply, err := t.Group.Decide(ctx, r)
	failpoint.Hit(failpoint.ReplyPeerBefore)
	return reply, err
}

// Query answers a participant in doubt.
func (t *Transactions) Query(ctx context.Context, r *rpc.QueryRequest) (*rpc.QueryReply, error) {
	q, err := t.Group.Query(ctx, r)
	failpoint.Hit(failpoint.ReplyPeerBefore)
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return q, nil
}
