// Package client routes a call to the group that owns its key and retries what is transient: a server that restarts, a leader that
// changes, a view that is old. On top of the router, Client is the cluster as one mount sees it. It promises that a request takes
// effect once however often it is sent. It does not know FUSE, nor what servers do with a request.
package client

import (
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/ring"
)

// MaxMessage is the largest message between processes, bytes.
const MaxMessage = 20 << 20

// Pauses between attempts.
const (
	firstPause = 5 * time.Millisecond
	maxPause   = time.Second
)

// Router sends requests to the owners of keys. Safe for concurrent use.
type Router struct {
	// View is asked before every attempt.
	View func() *ring.View
	// Refresh is told that the view seems old; nil when it cannot change.
	Refresh func(ctx context.Context)
	// Local answers requests of one group in this process, without the network; zero: none.
	LocalGroup objcache.GroupID
	Local      func(ctx context.Context, r *rpc.Request) *rpc.Reply
	// TLS of connections; nil: plain text.
	TLS *tls.Config
	// Dialer replaces TCP in tests.
	Dialer func(ctx context.Context, address string) (net.Conn, error)

	mu     sync.Mutex
	conns  map[string]*grpc.ClientConn
	closed bool
}

// Conn returns the connection to an address; it is made at first use and shared. Interrupted after Close.
func (r *Router) Conn(address string) (*grpc.ClientConn, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, objcache.Errorf(objcache.Interrupted, "connect to %s: the router is closed", address)
	}
	if c := r.conns[address]; c != nil {
		return c, nil
	}
	creds := insecure.NewCredentials()
	if r.TLS != nil {
		creds = credentials.NewTLS(r.TLS)
	}
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(creds), grpc.WithDisableServiceConfig(), grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxMessage), grpc.MaxCallSendMsgSize(MaxMessage), grpc.ForceCodecV2(rpc.Codec{})),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, MaxDelay: time.Second, Jitter: 0.2},
			MinConnectTimeout: 2 * time.Second,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 5 * time.Second, PermitWithoutStream: true}),
		grpc.WithInitialWindowSize(8 << 20), grpc.WithInitialConnWindowSize(32 << 20), grpc.WithReadBufferSize(256 << 10), grpc.WithWriteBufferSize(256 << 10),
	}
	if r.Dialer != nil {
		opts = append(opts, grpc.WithContextDialer(r.Dialer))
	}
	c, err := grpc.NewClient("passthrough:///"+address, opts...)
	if err != nil {
		return nil, objcache.Errorf(objcache.Invalid, "address %q: %w", address, err)
	}
	if r.conns == nil {
		r.conns = map[string]*grpc.ClientConn{}
	}
	r.conns[address] = c
	return c, nil
}

// Close closes every connection; no other is made.
func (r *Router) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var err error
	for _, c := range r.conns {
		err = errors.Join(err, c.Close())
	}
	r.conns, r.closed = nil, true
	return err
}

// Call sends a request to the owner of a place on the ring until it is answered or ctx ends. The error is the operation's own, of its kind. Fenced means
// that nothing was done.
func (r *Router) Call(ctx context.Context, hash uint64, req *rpc.Request) (*rpc.Reply, error) {
	return r.CallInto(ctx, hash, req, nil)
}

// CallInto is Call for a request that reads: bytes that come over the network are put into dst if they fit.
func (r *Router) CallInto(ctx context.Context, hash uint64, req *rpc.Request, dst []byte) (*rpc.Reply, error) {
	pause := firstPause
	for unknown := false; ; {
		reply, err := r.once(ctx, hash, req, dst)
		k := objcache.KindOf(err)
		if k == objcache.Fenced && unknown && req.GetHeader().GetSeq() != 0 { // an attempt before may have been done, before the session ended
			return nil, objcache.Errorf(objcache.IO, "outcome unknown: %w", err)
		}
		unknown = unknown || k == objcache.Unavailable
		if err == nil || k != objcache.Unavailable && k != objcache.NotOwner {
			return reply, err
		}
		if k == objcache.NotOwner && r.Refresh != nil {
			r.Refresh(ctx)
		}
		t := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, objcache.Errorf(ended(ctx), "%w", errors.Join(err, ctx.Err()))
		}
		pause = min(2*pause, maxPause)
	}
}

// ended is the kind of an operation that its context ended: interrupted by the caller, or out of time.
func ended(ctx context.Context) objcache.Kind {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return objcache.IO
	}
	return objcache.Interrupted
}

func (r *Router) once(ctx context.Context, hash uint64, req *rpc.Request, dst []byte) (*rpc.Reply, error) {
	v := r.View()
	if req.Header == nil {
		req.Header = &rpc.Header{}
	}
	req.Header.ViewEpoch, req.Header.ViewVersion = v.Version.Epoch, v.Version.Version
	return r.send(ctx, v, v.Owner(hash), req, dst)
}

// Tell sends a request to a group once, whoever owns what.
func (r *Router) Tell(ctx context.Context, to objcache.GroupID, req *rpc.Request) error {
	_, err := r.send(ctx, r.View(), to, req, nil)
	return err
}

// Ask is Tell for a request with an answer.
func (r *Router) Ask(ctx context.Context, to objcache.GroupID, req *rpc.Request) (*rpc.Reply, error) {
	return r.send(ctx, r.View(), to, req, nil)
}

func (r *Router) send(ctx context.Context, v *ring.View, owner objcache.GroupID, req *rpc.Request, dst []byte) (*rpc.Reply, error) {
	if owner == r.LocalGroup && r.Local != nil {
		reply := r.Local(ctx, req)
		return reply, reply.GetFailure().Err()
	}
	m, ok := v.Member(owner)
	if !ok {
		return nil, objcache.Errorf(objcache.NotOwner, "group %d is in no view", owner)
	}
	c, err := r.Conn(m.Address)
	if err != nil {
		return nil, err
	}
	reply := rpc.Into{Reply: &rpc.Reply{}, Dst: dst}
	if err := c.Invoke(ctx, rpc.Files_Call_FullMethodName, req, &reply); err != nil {
		if ctx.Err() != nil {
			return nil, objcache.Errorf(ended(ctx), "%w", err)
		}
		return nil, rpc.FromStatus(err)
	}
	return reply.Reply, reply.GetFailure().Err()
}

// Groups carries what groups say to each other about transactions (group.Peers).
type Groups struct{ Router *Router }

func (g Groups) client(to objcache.GroupID) (rpc.TransactionsClient, error) {
	m, ok := g.Router.View().Member(to)
	if !ok {
		return nil, objcache.Errorf(objcache.NotOwner, "group %d is in no view", to)
	}
	c, err := g.Router.Conn(m.Address)
	if err != nil {
		return nil, err
	}
	return rpc.NewTransactionsClient(c), nil
}

// Prepare asks a participant once.
func (g Groups) Prepare(ctx context.Context, to objcache.GroupID, r *rpc.PrepareRequest) (*rpc.PrepareReply, error) {
	c, err := g.client(to)
	if err != nil {
		return nil, err
	}
	reply, err := c.Prepare(ctx, r)
	return reply, rpc.FromStatus(err)
}

// Decide tells a participant once.
func (g Groups) Decide(ctx context.Context, to objcache.GroupID, r *rpc.DecideRequest) (*rpc.DecideReply, error) {
	c, err := g.client(to)
	if err != nil {
		return nil, err
	}
	reply, err := c.Decide(ctx, r)
	return reply, rpc.FromStatus(err)
}

// Query asks a coordinator once.
func (g Groups) Query(ctx context.Context, to objcache.GroupID, r *rpc.QueryRequest) (*rpc.QueryReply, error) {
	c, err := g.client(to)
	if err != nil {
		return nil, err
	}
	reply, err := c.Query(ctx, r)
	return reply, rpc.FromStatus(err)
}

// Mirrors reaches the groups' keepers of mirrors.
type Mirrors struct{ Router *Router }

// Put sends rows to a keeper once.
func (m Mirrors) Put(ctx context.Context, to objcache.GroupID, r *rpc.MirrorPut) (*rpc.MirrorState, error) {
	c, err := m.client(to)
	if err != nil {
		return nil, err
	}
	reply, err := c.Put(ctx, r)
	return reply, rpc.FromStatus(err)
}

// Fetch asks a keeper once.
func (m Mirrors) Fetch(ctx context.Context, to objcache.GroupID, r *rpc.MirrorFetch) (*rpc.MirrorPage, error) {
	c, err := m.client(to)
	if err != nil {
		return nil, err
	}
	reply, err := c.Fetch(ctx, r)
	return reply, rpc.FromStatus(err)
}

func (m Mirrors) client(to objcache.GroupID) (rpc.MirrorClient, error) {
	g, ok := m.Router.View().Member(to)
	if !ok {
		return nil, objcache.Errorf(objcache.NotOwner, "group %d is in no view", to)
	}
	c, err := m.Router.Conn(g.Address)
	if err != nil {
		return nil, err
	}
	return rpc.NewMirrorClient(c), nil
}
