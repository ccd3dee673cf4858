package transfer

import (
	"context"
	"testing"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/external"
	"github.com/objcache/objcache/server/external/memstore"
	"github.com/objcache/objcache/server/record"
)

// inodes answers Inspect.
type inodes map[uint64]*record.Inode

func (i inodes) Call(_ context.Context, _ uint64, r *rpc.Request) (*rpc.Reply, error) {
	in, ok := i[r.GetInspect().GetIno()]
	if !ok {
		return nil, objcache.Errorf(objcache.Stale, "inode")
	}
	b, err := encode(in)
	return &rpc.Reply{Result: &rpc.Reply_Inspect{Inspect: &rpc.InspectReply{Inode: b}}}, err
}

func (inodes) Tell(context.Context, objcache.GroupID, *rpc.Request) error { return nil }

// Two files of the same bytes had a name one after the other: the object that the second has put is not the first one's to delete, whatever its ETag says.
func TestTheirs_IsTheObjectThatTheNamesNextFileHasPut(t *testing.T) {
	const dir, old, next = 5, 7, 8
	in := &record.Inode{Ino: old, Bucket: "b"}
	b := &record.Base{Key: "n", Etag: "same", Dir: dir, Name: "n"}
	put := &record.Inode{Ino: next, Links: []*record.Link{{Dir: dir, Name: "n", Key: "n", Etag: "same"}}}
	notYet := &record.Inode{Ino: next, Links: []*record.Link{{Dir: dir, Name: "n"}}}
	for name, c := range map[string]struct {
		now  *record.Inode
		p    *rpc.PathReply
		want bool
	}{
		"nobody has the name":        {nil, &rpc.PathReply{}, false},
		"its own again":              {nil, &rpc.PathReply{ChildNow: old}, false},
		"the next has put":           {put, &rpc.PathReply{ChildNow: next}, true},
		"the next has not put yet":   {notYet, &rpc.PathReply{ChildNow: next}, false},
		"the next is gone":           {nil, &rpc.PathReply{ChildNow: next}, false},
		"a third that lost it later": {nil, &rpc.PathReply{LaterKeys: []string{"n"}}, true}, // the object does not say that it is the first one's
	} {
		all := inodes{}
		if c.now != nil {
			all[next] = c.now
		}
		tr := &Transfer{cfg: Config{Peers: all, Stores: map[string]external.Store{"b": memstore.New(memstore.Config{})}}}
		if got, err := tr.theirs(t.Context(), in, b, c.p); err != nil || got != c.want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
