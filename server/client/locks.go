package client

import (
	"context"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
)

func lockRequest(verb rpc.LockRequest_Verb, l objcache.Lock, ticket uint64) *rpc.Request {
	return &rpc.Request{Op: &rpc.Request_Lock{Lock: &rpc.LockRequest{
		Ino: uint64(l.Ino), Verb: verb, Flock: l.Flock, Ticket: ticket,
		Lock: &rpc.FileLock{Owner: l.Owner, Exclusive: l.Exclusive, Start: l.Start, End: l.End, Pid: l.PID},
	}}}
}

// TryLock takes a lock, if nobody's is in the way (else Busy), and returns the file's attributes as of then.
func (c *Client) TryLock(ctx context.Context, l objcache.Lock, ticket uint64) (objcache.Attr, error) {
	r, err := c.mutate(ctx, hashOf(l.Ino), lockRequest(rpc.LockRequest_TRY, l, ticket))
	if err != nil {
		return objcache.Attr{}, err
	}
	return c.attr(r.GetLock().GetAttr()), nil
}

// AwaitLock returns when a waiter may try again.
func (c *Client) AwaitLock(ctx context.Context, l objcache.Lock, ticket uint64) error {
	_, err := c.read(ctx, hashOf(l.Ino), lockRequest(rpc.LockRequest_AWAIT, l, ticket))
	return err
}

// LeaveLock gives a place in the queue up.
func (c *Client) LeaveLock(ctx context.Context, l objcache.Lock, ticket uint64) error {
	_, err := c.read(ctx, hashOf(l.Ino), lockRequest(rpc.LockRequest_LEAVE, l, ticket))
	return err
}

// Unlock gives a range back.
func (c *Client) Unlock(ctx context.Context, l objcache.Lock) error {
	_, err := c.mutate(ctx, hashOf(l.Ino), lockRequest(rpc.LockRequest_UNLOCK, l, 0))
	return err
}

// TestLock returns a lock that is in the way of l, if there is one.
func (c *Client) TestLock(ctx context.Context, l objcache.Lock) (objcache.Lock, bool, error) {
	var s *session
	r, err := c.inSession(ctx, func(now *session) (*rpc.Reply, error) {
		s = now
		return c.readAs(ctx, now, hashOf(l.Ino), lockRequest(rpc.LockRequest_TEST, l, 0), nil)
	})
	by := r.GetLock().GetBy()
	if err != nil || by == nil {
		return objcache.Lock{}, false, err
	}
	held := objcache.Lock{Ino: l.Ino, Flock: l.Flock, Owner: by.GetOwner(), Exclusive: by.GetExclusive(), Start: by.GetStart(), End: by.GetEnd()}
	if by.GetClient() == uint64(s.id) { // processes of other nodes have numbers that mean nothing here
		held.PID = by.GetPid()
	}
	return held, true, nil
}
