package client

import (
	"context"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
)

// Open registers an open and returns the attributes as of now.
func (c *Client) Open(ctx context.Context, ino objcache.Ino) (objcache.Attr, error) {
	r, err := c.read(ctx, hashOf(ino), &rpc.Request{Op: &rpc.Request_Open{Open: &rpc.OpenRequest{Ino: uint64(ino)}}})
	a, err := c.attrReply(r, err)
	if err != nil {
		return a, err
	}
	a.Locked = r.GetAttr().GetLocked()
	c.opened(ino)
	return a, nil
}

// opened notes one more open that the servers know of.
func (c *Client) opened(ino objcache.Ino) {
	c.files.mu.Lock()
	defer c.files.mu.Unlock()
	c.files.mu.opens[ino]++
}

// Release undoes one Open, without waiting for the network.
func (c *Client) Release(ino objcache.Ino) {
	c.files.mu.Lock()
	if c.files.mu.opens[ino]--; c.files.mu.opens[ino] == 0 {
		delete(c.files.mu.opens, ino)
	}
	c.files.mu.ended[ino]++
	c.files.mu.Unlock()
	select {
	case c.files.release <- struct{}{}:
	default: // the loop has not come to what was there before
	}
}

// releaseLoop tells the servers of opens that ended, as many as there are at a time. What does not arrive stays open for them until
// the session ends: bytes of a removed file are freed later, never earlier.
func (c *Client) releaseLoop(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.files.release:
		}
		c.files.mu.Lock()
		ended := c.files.mu.ended
		c.files.mu.ended = map[objcache.Ino]uint32{}
		c.files.mu.Unlock()
		v := c.View()
		byGroup := map[objcache.GroupID]map[uint64]uint32{}
		for ino, n := range ended {
			g := v.OwnerOfInode(ino)
			if byGroup[g] == nil {
				byGroup[g] = map[uint64]uint32{}
			}
			byGroup[g][uint64(ino)] = n
		}
		for g, closed := range byGroup {
			c.tellClosed(ctx, g, closed)
		}
	}
}

// tellClosed tells one group of opens of its inodes that ended, once: a group that counted them and could not say so would count them twice, and take a
// file away that is still open. A group that restarts has forgotten them anyway.
func (c *Client) tellClosed(ctx context.Context, to objcache.GroupID, closed map[uint64]uint32) {
	c.life.mu.Lock()
	id, within := c.life.mu.now.id, renewEvery(c.life.mu.lease)
	c.life.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err := c.router.Tell(ctx, to, &rpc.Request{
		Header: &rpc.Header{Client: uint64(id)}, Op: &rpc.Request_Release{Release: &rpc.ReleaseRequest{Closed: closed}},
	})
	if err != nil {
		c.cfg.Logger.Debug("releases not delivered", "files", len(closed), "error", err)
	}
}

// renewOpens tells every group what the session has open there.
func (c *Client) renewOpens(ctx context.Context) {
	c.life.mu.Lock()
	id, within := c.life.mu.now.id, renewEvery(c.life.mu.lease)
	c.life.mu.Unlock()
	v := c.View()
	byGroup := map[objcache.GroupID]map[uint64]uint32{}
	c.files.mu.Lock()
	for ino, n := range c.files.mu.opens {
		g := v.OwnerOfInode(ino)
		if byGroup[g] == nil {
			byGroup[g] = map[uint64]uint32{}
		}
		byGroup[g][uint64(ino)] = n
	}
	c.files.mu.Unlock()
	for g, opens := range byGroup {
		go func() {
			ctx, cancel := context.WithTimeout(ctx, within)
			defer cancel()
			err := c.router.Tell(ctx, g, &rpc.Request{
				Header: &rpc.Header{Client: uint64(id)}, Op: &rpc.Request_Renew{Renew: &rpc.RenewRequest{Opens: opens}},
			})
			if err != nil {
				c.cfg.Logger.Debug("opens not repeated", "group", g, "error", err)
			}
		}()
	}
}
