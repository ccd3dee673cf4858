package client

import (
	"context"
	"sync"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
)

// opens is what the client has open. Each open has a number. Servers keep the latest of each inode, and are told "not open, by the opens before N": so
// requests may come twice, late, or not at all.
type opens struct {
	mu struct {
		sync.Mutex
		number uint64
		under  map[uint64]bool               // opens whose answer is not there yet
		count  map[objcache.Ino]uint32       // of descriptors
		ended  map[objcache.Ino]bool         // no descriptor is left, which the servers have not been told
		groups map[objcache.GroupID]struct{} // that may think something is open
	}
	release chan struct{} // something is in ended
}

func (o *opens) init() {
	o.mu.under = map[uint64]bool{}
	o.mu.count = map[objcache.Ino]uint32{}
	o.mu.ended = map[objcache.Ino]bool{}
	o.mu.groups = map[objcache.GroupID]struct{}{}
	o.release = make(chan struct{}, 1)
}

// begin numbers an open that a group is asked for.
func (o *opens) begin(g objcache.GroupID) uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.number++
	o.mu.under[o.mu.number] = true
	o.mu.groups[g] = struct{}{}
	return o.mu.number
}

// end is called when nobody waits for its answer any more; an open that succeeded has been added.
func (o *opens) end(number uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.mu.under, number)
}

// add counts a descriptor that the servers know of.
func (o *opens) add(ino objcache.Ino) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.count[ino]++
	delete(o.mu.ended, ino)
}

// drop counts a descriptor less.
func (o *opens) drop(ino objcache.Ino) {
	o.mu.Lock()
	if o.mu.count[ino]--; o.mu.count[ino] == 0 {
		delete(o.mu.count, ino)
		o.mu.ended[ino] = true
	}
	o.mu.Unlock()
	select {
	case o.release <- struct{}{}:
	default: // the loop has not come to what was there before
	}
}

// beforeLocked is the number before which every open has been answered, or given up.
func (o *opens) beforeLocked() uint64 {
	before := o.mu.number + 1
	for n := range o.mu.under {
		before = min(before, n)
	}
	return before
}

// takeEnded returns the inodes of which no descriptor is left, by group.
func (o *opens) takeEnded(owner func(objcache.Ino) objcache.GroupID) (byGroup map[objcache.GroupID]map[uint64]uint32, before uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	byGroup = map[objcache.GroupID]map[uint64]uint32{}
	for ino := range o.mu.ended {
		g := owner(ino)
		if byGroup[g] == nil {
			byGroup[g] = map[uint64]uint32{}
		}
		byGroup[g][uint64(ino)] = 1
	}
	clear(o.mu.ended)
	return byGroup, o.beforeLocked()
}

// all returns everything that is open, by group, for every group that may think something is.
func (o *opens) all(owner func(objcache.Ino) objcache.GroupID) (byGroup map[objcache.GroupID]map[uint64]uint32, before uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	byGroup = map[objcache.GroupID]map[uint64]uint32{}
	for g := range o.mu.groups {
		byGroup[g] = map[uint64]uint32{}
	}
	for ino, n := range o.mu.count {
		g := owner(ino)
		if byGroup[g] == nil {
			byGroup[g] = map[uint64]uint32{}
		}
		byGroup[g][uint64(ino)] = n
	}
	return byGroup, o.beforeLocked()
}

// Open registers an open and returns the attributes as of now.
func (c *Client) Open(ctx context.Context, ino objcache.Ino) (objcache.Attr, error) {
	number := c.opens.begin(c.View().OwnerOfInode(ino))
	defer c.opens.end(number)
	r, err := c.read(ctx, hashOf(ino), &rpc.Request{Op: &rpc.Request_Open{Open: &rpc.OpenRequest{Ino: uint64(ino), Number: number}}})
	a, err := c.attrReply(r, err)
	if err != nil {
		return a, err // if it was opened after all, the next renewal says that it is not
	}
	a.Locked = r.GetAttr().GetLocked()
	c.opens.add(ino)
	return a, nil
}

// Release undoes one Open, without waiting for the network.
func (c *Client) Release(ino objcache.Ino) { c.opens.drop(ino) }

// releaseLoop tells the servers of opens that ended, as many as there are at a time. What does not arrive is said again by the next renewal: bytes of a
// removed file are freed later, never earlier.
func (c *Client) releaseLoop(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.opens.release:
		}
		byGroup, before := c.opens.takeEnded(c.View().OwnerOfInode)
		for g, closed := range byGroup {
			err := c.tellGroup(ctx, g, &rpc.Request{Op: &rpc.Request_Release{Release: &rpc.ReleaseRequest{Closed: closed, Before: before}}})
			if err != nil {
				c.cfg.Logger.Debug("releases not delivered", "files", len(closed), "error", err)
			}
		}
	}
}

// tellGroup tells one group something of the session, once.
func (c *Client) tellGroup(ctx context.Context, to objcache.GroupID, r *rpc.Request) error {
	c.life.mu.Lock()
	id, within := c.life.mu.now.id, renewEvery(c.life.mu.lease)
	c.life.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	r.Header = &rpc.Header{Client: uint64(id)}
	return c.router.Tell(ctx, to, r)
}

// renewOpens tells every group what the session has open there.
func (c *Client) renewOpens(ctx context.Context) {
	byGroup, before := c.opens.all(c.View().OwnerOfInode)
	for g, opens := range byGroup {
		go func() {
			if err := c.tellGroup(ctx, g, &rpc.Request{Op: &rpc.Request_Renew{Renew: &rpc.RenewRequest{Opens: opens, Before: before}}}); err != nil {
				c.cfg.Logger.Debug("opens not repeated", "group", g, "error", err)
			}
		}()
	}
}
