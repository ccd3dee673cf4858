package client

import (
	"context"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
)

// bucketsAtOnce is more than a cluster has bucket directories.
const bucketsAtOnce = 1000

// Refresh looks at external storage again now: at a directory, at that of a file, or, for the root, at every bucket's.
func (c *Client) Refresh(ctx context.Context, ino objcache.Ino) error {
	if ino != objcache.RootIno {
		return c.refreshOne(ctx, ino)
	}
	for cookie, eof := uint64(0), false; !eof; {
		var es []objcache.DirEntry
		var err error
		if es, eof, err = c.Readdir(ctx, ino, cookie, bucketsAtOnce); err != nil {
			return err
		}
		for _, e := range es {
			cookie = e.Cookie
			if err := c.refreshOne(ctx, e.Attr.Ino); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *Client) refreshOne(ctx context.Context, ino objcache.Ino) error {
	_, err := c.read(ctx, hashOf(ino), &rpc.Request{Op: &rpc.Request_Refresh{Refresh: &rpc.RefreshRequest{Ino: uint64(ino)}}})
	return err
}
