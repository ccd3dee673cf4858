package rpc

import (
	"context"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/ring"
)

// admit lets requests of living sessions in. Of a client that this group has not met, since it started, the owner of its session is asked, once.
func (f *Files) admit(ctx context.Context, r *rpc.Request) error {
	h := r.GetHeader()
	if f.Group.Comparing() {
		switch r.GetOp().(type) {
		case *rpc.Request_Persist, *rpc.Request_Refresh, *rpc.Request_Read, *rpc.Request_Warm, *rpc.Request_Lookup, *rpc.Request_Readdir:
			return comparing(f.Group.ID())
		}
	}
	if h.GetClient() == 0 || h.GetInternal() || r.GetSession() != nil {
		return nil
	}
	if f.Group.Comparing() {
		return comparing(f.Group.ID())
	}
	c := objcache.ClientID(h.GetClient())
	if ok, err := f.Group.Admitted(c); ok || err != nil {
		return err
	}
	_, err := f.FS.Peers.Call(ctx, ring.HashClient(c), &rpc.Request{Op: &rpc.Request_Session{Session: &rpc.SessionRequest{
		Verb: rpc.SessionRequest_CHECK, Client: uint64(c),
	}}})
	if err != nil {
		return err
	}
	return f.Group.Admit(c)
}

// session carries out a request about a session whose row is here.
func (f *Files) session(ctx context.Context, r *rpc.SessionRequest) (*rpc.Reply, error) {
	c := objcache.ClientID(r.GetClient())
	var err error
	switch r.GetVerb() {
	case rpc.SessionRequest_OPEN:
		err = f.Group.OpenSession(ctx, c, r.GetNode())
	case rpc.SessionRequest_RENEW:
		err = f.Group.RenewSession(c)
	case rpc.SessionRequest_CHECK:
		err = f.Group.CheckSession(c)
	case rpc.SessionRequest_CLOSE:
		err = f.Group.EndSession(ctx, c)
	}
	return &rpc.Reply{Result: &rpc.Reply_Session{Session: &rpc.SessionReply{Lease: int64(f.Group.Lease())}}}, err
}

func comparing(g objcache.GroupID) error {
	return objcache.Errorf(objcache.Unavailable, "group %d has lost its disk and is being compared with the others", g)
}
