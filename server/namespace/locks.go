package namespace

import (
	"context"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/meta"
)

// Lock carries out a request about file locks. With a lock come the attributes of the file as of then: who held it before has flushed.
func (f *FS) Lock(ctx context.Context, h *rpc.Header, r *rpc.LockRequest) (*rpc.Reply, error) {
	return f.Group.Lock(ctx, h, r, func(rd meta.Reader) (*rpc.Attr, error) {
		in, err := meta.Inode(rd, objcache.Ino(r.GetIno()))
		return Attr(in), err
	})
}
