package bubble

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/client"
)

// node of the model: a file, directory or symlink.
type inode struct {
	ino      objcache.Ino
	dir      map[string]*inode // directories
	body     []byte
	target   string
	mode     uint32 // permission bits
	uid, gid uint32
	mtime    int64
	links    int
	xattrs   map[string]string
}

func isFile(n *inode) bool { return n.dir == nil && n.target == "" }
func isDir(n *inode) bool  { return n.dir != nil }
func notDir(n *inode) bool { return n.dir == nil }
func anything(*inode) bool { return true }

func (x *inode) put(off int64, b []byte) {
	x.resize(max(int64(len(x.body)), off+int64(len(b))))
	copy(x.body[off:], b)
}

func (x *inode) resize(n int64) {
	if n <= int64(len(x.body)) {
		x.body = x.body[:n:n]
		return
	}
	x.body = append(x.body, make([]byte, n-int64(len(x.body)))...)
}

// below reports whether x is top or stands somewhere below it.
func below(x, top *inode) bool {
	if x == top {
		return true
	}
	for _, c := range top.dir {
		if c.dir != nil && below(x, c) {
			return true
		}
	}
	return false
}

// named is a place in the model.
type named struct {
	parent *inode
	name   string
	path   string
	node   *inode
}

// places are all names below a directory of the model, parents before children.
func places(root *inode) []named {
	var out []named
	var walk func(d *inode, at string)
	walk = func(d *inode, at string) {
		for _, n := range slices.Sorted(maps.Keys(d.dir)) {
			x := d.dir[n]
			out = append(out, named{d, n, path.Join(at, n), x})
			if x.dir != nil {
				walk(x, path.Join(at, n))
			}
		}
	}
	walk(root, "")
	return out
}

// objects is what the bucket must hold of a subtree: every object by its key.
func objects(root *inode, prefix string) map[string][]byte {
	out := map[string][]byte{prefix + "/": nil}
	for _, n := range places(root) {
		switch k := prefix + "/" + n.path; {
		case n.node.dir != nil:
			out[k+"/"] = nil
		case n.node.target != "":
			out[k] = []byte(n.node.target)
		default:
			out[k] = n.node.body
		}
	}
	return out
}

// list returns all entries of a directory, in pages of that many.
func list(ctx context.Context, c *client.Client, dir objcache.Ino, page int) ([]objcache.DirEntry, error) {
	var out []objcache.DirEntry
	for cookie := uint64(0); ; {
		es, eof, err := c.Readdir(ctx, dir, cookie, page)
		if err != nil {
			return nil, err
		}
		out = append(out, es...)
		if eof || len(es) == 0 {
			return out, nil
		}
		cookie = es[len(es)-1].Cookie
	}
}

// seen is what a client shows of one name; two clusters on one bucket must show the same.
type seen struct {
	Type, Perm, UID, GID uint32
	Size, Mtime          int64
	Target               string
	Xattrs               string
	Body                 string
}

// show reads everything below a directory.
func show(ctx context.Context, c *client.Client, dir objcache.Ino, at string, out map[string]seen) error {
	es, err := list(ctx, c, dir, 100)
	if err != nil {
		return fmt.Errorf("list %q: %w", at, err)
	}
	for _, e := range es {
		p := path.Join(at, e.Name)
		a, err := c.Lookup(ctx, dir, e.Name)
		if err != nil {
			return fmt.Errorf("look up %q: %w", p, err)
		}
		s, err := showOne(ctx, c, a)
		if err != nil {
			return fmt.Errorf("%q: %w", p, err)
		}
		out[p] = s
		if a.IsDir() {
			if err := show(ctx, c, a.Ino, p, out); err != nil {
				return err
			}
		}
	}
	return nil
}

func showOne(ctx context.Context, c *client.Client, a objcache.Attr) (seen, error) {
	s := seen{Type: a.Mode & objcache.ModeMask, Perm: a.Mode & 0o7777, UID: a.UID, GID: a.GID, Target: a.Target, Size: a.Size, Mtime: a.Mtime.UnixNano()}
	if a.IsDir() {
		s.Size = 0
	}
	names, err := c.Listxattr(ctx, a.Ino)
	if err != nil {
		return s, err
	}
	slices.Sort(names)
	for _, n := range names {
		v, err := c.Getxattr(ctx, a.Ino, n)
		if err != nil {
			return s, err
		}
		s.Xattrs += fmt.Sprintf("%s=%q ", n, v)
	}
	if a.IsRegular() {
		b, err := readAll(ctx, c, a)
		if err != nil {
			return s, err
		}
		s.Body = string(b)
	}
	return s, nil
}

func readAll(ctx context.Context, c *client.Client, a objcache.Attr) ([]byte, error) {
	b := make([]byte, a.Size)
	n, err := c.ReadAt(ctx, a.Ino, a.Version, b, 0)
	if err == nil && n != len(b) {
		err = fmt.Errorf("%d bytes instead of %d", n, len(b))
	}
	return b, err
}
