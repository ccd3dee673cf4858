package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/ring"
)

// session is one session of this client. Requests carry its id; servers refuse them once it has ended.
type session struct {
	id     objcache.ClientID
	number uint64 // 1, 2, ...
	seqs   sequence
}

// life is the present session and how surely it still lives.
type life struct {
	fenced chan struct{} // somebody was told that the session has ended
	mu     struct {
		sync.Mutex
		now     *session
		lease   time.Duration
		heard   time.Time     // when the last request was sent that renewed it
		changed chan struct{} // closed at the next renewal or session
		lost    func()
	}
}

func (l *life) init() {
	l.fenced = make(chan struct{}, 1)
	l.mu.changed = make(chan struct{})
}

// renewEvery is how often a session tells servers that it lives and what it has open, for a lease; doubtful is after how long without an answer
// operations wait, since the session may end before they are done.
func renewEvery(lease time.Duration) time.Duration { return lease / 3 }
func doubtful(lease time.Duration) time.Duration   { return lease / 3 * 2 }

func (l *life) lease() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.lease
}

// current returns the session when it surely lives. It waits otherwise, and ends with ctx.
func (l *life) current(ctx context.Context) (*session, error) {
	for {
		l.mu.Lock()
		s, changed, sure := l.mu.now, l.mu.changed, time.Since(l.mu.heard) < doubtful(l.mu.lease)
		l.mu.Unlock()
		if sure {
			return s, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, objcache.Errorf(ended(ctx), "the session could not be renewed: %w", ctx.Err())
		}
	}
}

// after waits for another session than s.
func (l *life) after(ctx context.Context, s *session) error {
	select {
	case l.fenced <- struct{}{}:
	default:
	}
	for {
		l.mu.Lock()
		now, changed := l.mu.now, l.mu.changed
		l.mu.Unlock()
		if now != s {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return objcache.Errorf(ended(ctx), "the session has ended: %w", ctx.Err())
		}
	}
}

func (l *life) renewed(s *session, sent time.Time, lease time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.now, l.mu.heard, l.mu.lease = s, sent, lease
	close(l.mu.changed)
	l.mu.changed = make(chan struct{})
}

// inSession runs a request under the present session, and again under the next one when that has ended: Fenced means that it was not done (Router).
func (c *Client) inSession(ctx context.Context, f func(*session) (*rpc.Reply, error)) (*rpc.Reply, error) {
	for {
		s, err := c.life.current(ctx)
		if err != nil {
			return nil, err
		}
		r, err := f(s)
		if !errors.Is(err, objcache.Fenced) {
			return r, err
		}
		if err := c.life.after(ctx, s); err != nil {
			return nil, err
		}
	}
}

// Session numbers the present session. When it has changed, what belonged to the last one is gone: locks, and what Flush.Session names.
func (c *Client) Session() uint64 {
	c.life.mu.Lock()
	defer c.life.mu.Unlock()
	return c.life.mu.now.number
}

// OnSessionLost has f called when a session has ended, before the next one is used. f does not wait for anything.
func (c *Client) OnSessionLost(f func()) {
	c.life.mu.Lock()
	defer c.life.mu.Unlock()
	c.life.mu.lost = f
}

func (c *Client) tellOwner(ctx context.Context, s *session, verb rpc.SessionRequest_Verb) (time.Duration, error) {
	r, err := c.router.Call(ctx, ring.HashClient(s.id), &rpc.Request{Op: &rpc.Request_Session{Session: &rpc.SessionRequest{
		Verb: verb, Client: uint64(s.id), Node: c.cfg.Node,
	}}})
	return time.Duration(r.GetSession().GetLease()), err
}

// openWithin is how long one ClientId's owner has to answer, before another one's is asked.
const openWithin = 2 * time.Second

// begin opens a session, the first or the next.
func (c *Client) begin(ctx context.Context) error {
	for {
		s := &session{id: objcache.ClientID(rand.Uint64() | 1)}
		s.seqs.init()
		sent := time.Now()
		bounded, cancel := context.WithTimeout(ctx, openWithin)
		lease, err := c.tellOwner(bounded, s, rpc.SessionRequest_OPEN)
		late := bounded.Err() != nil
		cancel()
		if late && err != nil && ctx.Err() == nil {
			continue // if it was opened after all, its lease ends it
		}
		if err != nil {
			return err
		}
		c.life.mu.Lock()
		lost := c.life.mu.lost
		if c.life.mu.now != nil {
			s.number = c.life.mu.now.number
		}
		s.number++
		c.life.mu.Unlock()
		if time.Since(sent) > doubtful(lease) {
			continue // it may have ended already
		}
		if lost != nil && s.number > 1 {
			lost()
		}
		c.life.renewed(s, sent, lease)
		return nil
	}
}

// keep renews the session, and opens another one when it has ended.
func (c *Client) keep(ctx context.Context) error {
	for {
		wait := renewEvery(c.life.lease())
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		case <-t.C:
		case <-c.life.fenced:
			t.Stop()
		}
		c.renewOnce(ctx, wait)
		c.renewOpens(ctx)
	}
}

func (c *Client) renewOnce(ctx context.Context, wait time.Duration) {
	c.life.mu.Lock()
	s := c.life.mu.now
	c.life.mu.Unlock()
	bounded, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	sent := time.Now()
	lease, err := c.tellOwner(bounded, s, rpc.SessionRequest_RENEW)
	switch {
	case err == nil:
		c.life.renewed(s, sent, lease)
	case errors.Is(err, objcache.Fenced):
		c.cfg.Logger.Error("the session has ended: its locks are lost", "session", s.number)
		if err := c.begin(ctx); err != nil {
			return // ctx has ended
		}
		c.cfg.Logger.Info("another session has begun", "session", s.number+1)
	default:
		c.cfg.Logger.Warn("the session could not be renewed", "error", err)
	}
}

// closeWithin is how long Close waits for the session's end; else its lease ends it.
const closeWithin = 3 * time.Second

// end closes the session: nothing of it is left at the servers.
func (c *Client) end() {
	c.life.mu.Lock()
	s := c.life.mu.now
	c.life.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	if _, err := c.tellOwner(ctx, s, rpc.SessionRequest_CLOSE); err != nil {
		c.cfg.Logger.Warn("the session was not closed, its lease will end it", "error", err)
	}
}
