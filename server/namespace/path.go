package namespace

import (
	"context"
	"strings"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
	"github.com/objcache/objcache/server/ring"
)

func isDirMode(row *record.DirEntry) bool { return row.GetMode()&objcache.ModeMask == objcache.ModeDir }

// Path answers where a directory of this group stands in its bucket, and with a child who else owes external storage something under that name.
func (f *FS) Path(ctx context.Context, r *rpc.PathRequest) (*rpc.Reply, error) {
	out := &rpc.PathReply{}
	dir, err := f.OwnInode(ctx, objcache.Ino(r.GetIno()))
	if err != nil {
		return nil, err
	}
	out.Bucket = dir.GetBucket()
	if len(dir.GetLinks()) == 0 {
		return nil, objcache.Errorf(objcache.NotExist, "directory %d has no name any more", r.GetIno())
	}
	switch up := dir.GetLinks()[0]; {
	case dir.GetDir().GetDetour() != "" && !r.GetShown():
		out.Path = strings.TrimSuffix(dir.GetDir().GetDetour(), "/") // whoever stands on the way to its name does not matter there
	case up.GetDir() != uint64(objcache.RootIno):
		above, err := f.Peers.Call(ctx, ring.HashInode(objcache.Ino(up.GetDir())), &rpc.Request{
			Op: &rpc.Request_Path{Path: &rpc.PathRequest{Ino: up.GetDir(), Child: up.GetName(), ChildIno: r.GetIno(), Shown: r.GetShown()}},
		})
		if err != nil {
			return nil, err
		}
		out.Path, out.BlockedBy = above.GetPath().GetPath(), above.GetPath().GetBlockedBy()
	}
	if r.GetChild() == "" {
		return &rpc.Reply{Result: &rpc.Reply_Path{Path: out}}, nil
	}
	if out.Path != "" {
		out.Path += "/"
	}
	out.Path += r.GetChild()
	row, err := meta.Entry(f.Group.DB(), objcache.Ino(r.GetIno()), r.GetChild())
	if err != nil {
		return nil, err
	}
	out.Claimed = row.GetBusy() != 0 && row.GetBusy() == r.GetChildIno()
	out.ChildNow, out.Children, out.Marker = row.GetIno(), dir.GetDir().GetChildren(), dir.GetDir().GetMarker()
	for _, d := range row.GetDebts() {
		switch {
		case d.GetIno() == r.GetChildIno():
			out.Owes, out.LaterKeys = true, nil
		case d.GetDir(), isDirMode(row): // nor can a directory stand where the object of a file does
			out.BlockedBy = append(out.BlockedBy, d.GetIno())
		default:
			out.Debtors = append(out.Debtors, d.GetIno())
			out.DebtEtags = append(out.DebtEtags, d.GetEtag())
			out.DebtKeys = append(out.DebtKeys, d.GetKey())
			out.LaterKeys = append(out.LaterKeys, d.GetKey())
		}
	}
	if out.ChildNow == r.GetChildIno() && !out.Owes {
		out.LaterKeys = nil // who has the name wrote its objects after all who lost it
	}
	return &rpc.Reply{Result: &rpc.Reply_Path{Path: out}}, nil
}

// NameOf is an inode's path below the root as far as it can be told; with several names one of them.
func (f *FS) NameOf(ctx context.Context, ino objcache.Ino) string {
	in, err := f.Inode(ctx, ino)
	if err != nil || len(in.GetLinks()) == 0 {
		return "inode " + ino.String()
	}
	l := in.GetLinks()[0]
	p, err := f.Peers.Call(ctx, ring.HashInode(objcache.Ino(l.GetDir())), &rpc.Request{
		Op: &rpc.Request_Path{Path: &rpc.PathRequest{Ino: l.GetDir(), Child: l.GetName(), ChildIno: uint64(ino), Shown: true}},
	})
	if err != nil {
		return l.GetName()
	}
	return p.GetPath().GetBucket() + "/" + p.GetPath().GetPath()
}
