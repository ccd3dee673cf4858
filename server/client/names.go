package client

import (
	"context"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
)

func (c *Client) attr(a *rpc.Attr) objcache.Attr {
	c.files.seen(a)
	return objcache.Attr{
		Ino: objcache.Ino(a.GetIno()), Mode: a.GetMode(), Nlink: a.GetNlink(), UID: a.GetUid(), GID: a.GetGid(), Rdev: a.GetRdev(), Size: a.GetSize(),
		Atime: time.Unix(0, a.GetAtime()), Mtime: time.Unix(0, a.GetMtime()), Ctime: time.Unix(0, a.GetCtime()), Version: a.GetVersion(), Target: a.GetTarget(),
	}
}

func (c *Client) attrReply(r *rpc.Reply, err error) (objcache.Attr, error) {
	if err != nil {
		return objcache.Attr{}, err
	}
	return c.attr(r.GetAttr().GetAttr()), nil
}

// Lookup finds one name.
func (c *Client) Lookup(ctx context.Context, dir objcache.Ino, name string) (objcache.Attr, error) {
	return c.attrReply(c.read(ctx, hashOf(dir), &rpc.Request{Op: &rpc.Request_Lookup{Lookup: &rpc.LookupRequest{Dir: uint64(dir), Name: name}}}))
}

// Readdir lists names behind a cookie.
func (c *Client) Readdir(ctx context.Context, dir objcache.Ino, cookie uint64, limit int) ([]objcache.DirEntry, bool, error) {
	r, err := c.read(ctx, hashOf(dir), &rpc.Request{Op: &rpc.Request_Readdir{Readdir: &rpc.ReaddirRequest{Dir: uint64(dir), Cookie: cookie, Limit: uint32(limit)}}})
	if err != nil {
		return nil, false, err
	}
	out := make([]objcache.DirEntry, 0, len(r.GetReaddir().GetEntries()))
	for _, e := range r.GetReaddir().GetEntries() {
		out = append(out, objcache.DirEntry{Name: e.GetName(), Cookie: e.GetCookie(), Attr: c.attr(e.GetAttr())})
	}
	return out, r.GetReaddir().GetEof(), nil
}

func now() int64 { return time.Now().UnixNano() }

// Create makes an inode with a name; with n.Open in one round trip with the open where directory and file share a group.
func (c *Client) Create(ctx context.Context, dir objcache.Ino, name string, n objcache.NewNode) (objcache.Attr, error) {
	number := uint64(0)
	if n.Open {
		number = c.opens.begin(c.View().OwnerOfInode(dir))
		defer c.opens.end(number)
	}
	r, err := c.mutate(ctx, hashOf(dir), &rpc.Request{Op: &rpc.Request_Create{Create: &rpc.CreateRequest{
		Dir: uint64(dir), Name: name, Mode: n.Mode, Rdev: n.Rdev, Target: n.Target, Uid: n.UID, Gid: n.GID, Now: now(), Open: n.Open, Number: number,
	}}})
	a, err := c.attrReply(r, err)
	if err != nil || !n.Open {
		return a, err
	}
	if !r.GetAttr().GetOpened() { // the inode lives in another group
		return c.Open(ctx, a.Ino)
	}
	c.opens.add(a.Ino)
	return a, nil
}

// Unlink removes a name that is no directory's.
func (c *Client) Unlink(ctx context.Context, dir objcache.Ino, name string) error {
	return c.remove(ctx, dir, name, false)
}

// Rmdir removes an empty directory.
func (c *Client) Rmdir(ctx context.Context, dir objcache.Ino, name string) error {
	return c.remove(ctx, dir, name, true)
}

func (c *Client) remove(ctx context.Context, dir objcache.Ino, name string, directory bool) error {
	_, err := c.mutate(ctx, hashOf(dir), &rpc.Request{Op: &rpc.Request_Remove{Remove: &rpc.RemoveRequest{
		Dir: uint64(dir), Name: name, Directory: directory, Now: now(),
	}}})
	return err
}

// Rename moves a name.
func (c *Client) Rename(ctx context.Context, dir objcache.Ino, name string, newDir objcache.Ino, newName string, flags uint32) error {
	_, err := c.mutate(ctx, hashOf(dir), &rpc.Request{Op: &rpc.Request_Rename{Rename: &rpc.RenameRequest{
		Dir: uint64(dir), Name: name, NewDir: uint64(newDir), NewName: newName, Flags: flags, Now: now(),
	}}})
	return err
}

// Link gives a file another name.
func (c *Client) Link(ctx context.Context, ino objcache.Ino, newDir objcache.Ino, newName string) (objcache.Attr, error) {
	return c.attrReply(c.mutate(ctx, hashOf(newDir), &rpc.Request{Op: &rpc.Request_Link{Link: &rpc.LinkRequest{
		Ino: uint64(ino), Dir: uint64(newDir), Name: newName, Now: now(),
	}}}))
}

// Getattr returns an inode's attributes.
func (c *Client) Getattr(ctx context.Context, ino objcache.Ino) (objcache.Attr, error) {
	return c.attrReply(c.read(ctx, hashOf(ino), &rpc.Request{Op: &rpc.Request_Getattr{Getattr: &rpc.GetattrRequest{Ino: uint64(ino)}}}))
}

// Setattr changes attributes.
func (c *Client) Setattr(ctx context.Context, ino objcache.Ino, set objcache.SetAttr) (objcache.Attr, error) {
	r := &rpc.SetattrRequest{Ino: uint64(ino), Mode: set.Mode, Uid: set.UID, Gid: set.GID, Size: set.Size, KillPriv: set.KillPriv, Now: now()}
	if set.Atime != nil {
		ns := set.Atime.UnixNano()
		r.Atime = &ns
	}
	if set.Mtime != nil {
		ns := set.Mtime.UnixNano()
		r.Mtime = &ns
	}
	return c.attrReply(c.mutate(ctx, hashOf(ino), &rpc.Request{Op: &rpc.Request_Setattr{Setattr: r}}))
}

func (c *Client) xattr(ctx context.Context, x *rpc.XattrRequest) (*rpc.XattrReply, error) {
	req := &rpc.Request{Op: &rpc.Request_Xattr{Xattr: x}}
	send := c.mutate
	if x.GetVerb() == rpc.XattrRequest_GET || x.GetVerb() == rpc.XattrRequest_LIST {
		send = c.read
	}
	r, err := send(ctx, hashOf(objcache.Ino(x.GetIno())), req)
	return r.GetXattr(), err
}

// Getxattr reads an extended attribute.
func (c *Client) Getxattr(ctx context.Context, ino objcache.Ino, name string) ([]byte, error) {
	r, err := c.xattr(ctx, &rpc.XattrRequest{Ino: uint64(ino), Verb: rpc.XattrRequest_GET, Name: name})
	return r.GetValue(), err
}

// Listxattr lists the names of extended attributes.
func (c *Client) Listxattr(ctx context.Context, ino objcache.Ino) ([]string, error) {
	r, err := c.xattr(ctx, &rpc.XattrRequest{Ino: uint64(ino), Verb: rpc.XattrRequest_LIST})
	return r.GetNames(), err
}

// Setxattr sets an extended attribute.
func (c *Client) Setxattr(ctx context.Context, ino objcache.Ino, name string, value []byte, flags uint32) error {
	_, err := c.xattr(ctx, &rpc.XattrRequest{Ino: uint64(ino), Verb: rpc.XattrRequest_SET, Name: name, Value: value, Flags: flags, Now: now()})
	return err
}

// Removexattr removes an extended attribute.
func (c *Client) Removexattr(ctx context.Context, ino objcache.Ino, name string) error {
	_, err := c.xattr(ctx, &rpc.XattrRequest{Ino: uint64(ino), Verb: rpc.XattrRequest_REMOVE, Name: name, Now: now()})
	return err
}

// Statfs is answered from memory: external storage has no end.
func (c *Client) Statfs(context.Context) (objcache.Statfs, error) {
	return objcache.Statfs{Capacity: 1 << 50, Free: 1 << 50, Inodes: 1 << 40}, nil
}
