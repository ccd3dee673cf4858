package client

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/ring"
)

// Config is how a client finds its cluster.
type Config struct {
	Servers []string      // addresses of some servers; the view names the rest
	Timeout time.Duration // after which an operation that finds no server fails with EIO; 0: never
	Node    string        // told to operators
	Logger  *slog.Logger
	TLS     *tls.Config
	// Dial replaces TCP; nil: TCP.
	Dial func(ctx context.Context, address string) (net.Conn, error)
}

// Client is the cluster as one mount sees it: one session, or several one after the other. Safe for concurrent use.
type Client struct {
	cfg    Config
	life   life
	router *Router
	files  files
	opens  opens
	stop   context.CancelFunc
	work   *errgroup.Group
	mu     struct {
		sync.Mutex
		view   *ring.View
		upload string
	}
}

// Open begins a session. It returns when one server has told the view and the session's owner has its row.
func Open(ctx context.Context, cfg Config) (*Client, error) {
	if len(cfg.Servers) == 0 {
		return nil, objcache.Errorf(objcache.Invalid, "no server addresses")
	}
	life, stop := context.WithCancel(context.Background())
	c := &Client{cfg: cfg, stop: stop}
	c.router = &Router{View: c.View, Refresh: c.refresh, TLS: cfg.TLS, Dialer: cfg.Dial}
	c.life.init()
	c.files.init()
	c.opens.init()
	err := c.learn(ctx)
	if err == nil {
		err = c.begin(ctx)
	}
	if err != nil {
		stop()
		return nil, errors.Join(err, c.router.Close())
	}
	c.work, life = errgroup.WithContext(life)
	c.work.Go(func() error { return c.keep(life) })
	c.work.Go(func() error { return c.releaseLoop(life) })
	return c, nil
}

// Close ends the session.
func (c *Client) Close() error {
	c.stop()
	err := c.work.Wait()
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	c.end()
	return errors.Join(err, c.router.Close())
}

// View is the newest view the client knows.
func (c *Client) View() *ring.View {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.view
}

// learn asks the configured servers for the view until one answers.
func (c *Client) learn(ctx context.Context) error {
	pause := firstPause
	for {
		var last error
		for _, a := range c.cfg.Servers {
			if last = c.ask(ctx, a); last == nil {
				return nil
			}
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return objcache.Errorf(ended(ctx), "no server answers: %w", last)
		}
		pause = min(2*pause, maxPause)
	}
}

func (c *Client) ask(ctx context.Context, address string) error {
	conn, err := c.router.Conn(address)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	r, err := rpc.NewAdminClient(conn).View(ctx, &rpc.ViewRequest{})
	if err != nil {
		return rpc.FromStatus(err)
	}
	v, err := ViewOf(r)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.view == nil || c.mu.view.Version.Less(v.Version) {
		c.mu.view = v
	}
	c.mu.upload = r.GetUpload()
	return nil
}

// ViewOf is the view that a server told.
func ViewOf(r *rpc.ViewReply) (*ring.View, error) {
	ms := make([]ring.Member, 0, len(r.GetMembers()))
	for _, m := range r.GetMembers() {
		ms = append(ms, ring.Member{Group: objcache.GroupID(m.GetGroup()), Name: m.GetName(), Address: m.GetAddress(), Weight: int(m.GetWeight())})
	}
	return ring.New(objcache.ViewVersion{Epoch: r.GetEpoch(), Version: r.GetVersion()}, ms)
}

func (c *Client) refresh(ctx context.Context) {
	for _, m := range c.View().Members {
		if c.ask(ctx, m.Address) == nil {
			return
		}
	}
}

// bound applies the session's timeout.
func (c *Client) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.cfg.Timeout <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, c.cfg.Timeout)
}

// read sends a request that changes nothing.
func (c *Client) read(ctx context.Context, hash uint64, r *rpc.Request) (*rpc.Reply, error) {
	return c.readInto(ctx, hash, r, nil)
}

// readInto is read for bytes, which come into dst if they fit.
func (c *Client) readInto(ctx context.Context, hash uint64, r *rpc.Request, dst []byte) (*rpc.Reply, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	return c.inSession(ctx, func(s *session) (*rpc.Reply, error) { return c.readAs(ctx, s, hash, r, dst) })
}

func (c *Client) readAs(ctx context.Context, s *session, hash uint64, r *rpc.Request, dst []byte) (*rpc.Reply, error) {
	r.Header = &rpc.Header{Client: uint64(s.id), Start: time.Now().UnixNano()}
	return c.router.CallInto(ctx, hash, r, dst)
}

// mutate sends a request that takes effect once.
func (c *Client) mutate(ctx context.Context, hash uint64, r *rpc.Request) (*rpc.Reply, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	return c.inSession(ctx, func(s *session) (*rpc.Reply, error) { return c.mutateAs(ctx, s, hash, r) })
}

func (c *Client) mutateAs(ctx context.Context, s *session, hash uint64, r *rpc.Request) (*rpc.Reply, error) {
	seq, below, err := s.seqs.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer s.seqs.end(seq)
	r.Header = &rpc.Header{Client: uint64(s.id), Seq: uint64(seq), AckBelow: uint64(below), Start: time.Now().UnixNano()}
	return c.router.Call(ctx, hash, r)
}

// sequence numbers requests, and knows below which number every result has arrived.
type sequence struct {
	room chan struct{} // for requests in flight
	mu   struct {
		sync.Mutex
		next  objcache.SeqNum
		under map[objcache.SeqNum]bool
		low   objcache.SeqNum // every request below has ended
	}
}

// inFlight is how many requests with results a session has under way at most: servers keep no more results of it than that, and what they have not
// been told yet.
const inFlight = 4096

func (s *sequence) init() {
	s.room = make(chan struct{}, inFlight)
	s.mu.next, s.mu.low = 1, 1
	s.mu.under = map[objcache.SeqNum]bool{}
}

func (s *sequence) begin(ctx context.Context) (seq, below objcache.SeqNum, err error) {
	select {
	case s.room <- struct{}{}:
	case <-ctx.Done():
		return 0, 0, objcache.Errorf(ended(ctx), "too many requests in flight: %w", ctx.Err())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	seq = s.mu.next
	s.mu.next++
	s.mu.under[seq] = true
	return seq, s.mu.low, nil
}

func (s *sequence) end(seq objcache.SeqNum) {
	<-s.room
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.under, seq)
	for s.mu.low < s.mu.next && !s.mu.under[s.mu.low] {
		s.mu.low++
	}
}

func hashOf(ino objcache.Ino) uint64 { return ring.HashInode(ino) }
