package bubble

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/client"
)

// What a player compares with the model.

func (p *player) viewer() *client.Client {
	if len(p.others) > 0 && p.rng.IntN(2) == 0 {
		return p.others[p.rng.IntN(len(p.others))]
	}
	return p.c
}

func (p *player) look() {
	if f, ok := p.pick(anything); ok {
		p.note("look at %s (%d)", f.path, f.node.ino)
		p.check(p.viewer(), f)
	}
}

func (p *player) names() {
	d := p.dir()
	p.note("list %d", d.ino)
	p.checkNames(p.viewer(), d, "a directory")
}

func (p *player) checkNames(c *client.Client, d *inode, path string) {
	var es []objcache.DirEntry
	p.must(func(ctx context.Context) (err error) {
		es, err = list(ctx, c, d.ino, 1+p.rng.IntN(10))
		return err
	})
	var got []string
	for _, e := range es {
		got = append(got, e.Name)
	}
	slices.Sort(got)
	if want := slices.Sorted(maps.Keys(d.dir)); !slices.Equal(got, want) {
		p.failf("directory %s (%d) lists %q, should be %q", path, d.ino, got, want)
	}
}

// check compares one name with the model.
func (p *player) check(c *client.Client, f named) {
	x := f.node
	var a objcache.Attr
	if err := p.do(func(ctx context.Context) (err error) {
		a, err = c.Lookup(ctx, f.parent.ino, f.name)
		return err
	}); err != nil {
		p.failf("lookup of %s (%q in %d): %v", f.path, f.name, f.parent.ino, err)
	}
	switch {
	case a.Ino != x.ino:
		p.failf("%s is inode %d, should be %d", f.path, a.Ino, x.ino)
	case a.Target != x.target:
		p.failf("symlink %s shows %q, should be %q", f.path, a.Target, x.target)
	case x.dir == nil && int(a.Nlink) != x.links:
		p.failf("%s (%d) has %d links, should be %d", f.path, x.ino, a.Nlink, x.links)
	case a.Mode&0o7777 != x.mode || a.UID != x.uid:
		p.failf("%s (%d): mode %o and owner %d, should be %o and %d", f.path, x.ino, a.Mode, a.UID, x.mode, x.uid)
	case isFile(x) && a.Mtime.UnixNano() != x.mtime:
		p.failf("%s (%d): changed %v, should be %v", f.path, x.ino, a.Mtime, time.Unix(0, x.mtime))
	}
	if isFile(x) {
		p.sameBytes(c, a, x.body, f.path)
	}
	p.sameXattrs(c, x, f.path)
}

func (p *player) sameXattrs(c *client.Client, x *inode, path string) {
	var names []string
	p.must(func(ctx context.Context) (err error) {
		names, err = c.Listxattr(ctx, x.ino)
		return err
	})
	slices.Sort(names)
	if want := slices.Sorted(maps.Keys(x.xattrs)); !slices.Equal(names, want) {
		p.failf("%s (%d) has attributes %q, should have %q", path, x.ino, names, want)
	}
	for n, v := range x.xattrs {
		var got []byte
		p.must(func(ctx context.Context) (err error) {
			got, err = c.Getxattr(ctx, x.ino, n)
			return err
		})
		if string(got) != v {
			p.failf("attribute %q of %s is %q, should be %q", n, path, got, v)
		}
	}
}

func (p *player) sameBytes(c *client.Client, a objcache.Attr, want []byte, name string) {
	if a.Size != int64(len(want)) {
		p.failf("%s (%d) has size %d, should be %d", name, a.Ino, a.Size, len(want))
	}
	var got []byte
	p.must(func(ctx context.Context) (err error) {
		got, err = readAll(ctx, c, a)
		for errors.Is(err, objcache.Superseded) { // files that swap their names become new versions with the same bytes
			if a, err = c.Getattr(ctx, a.Ino); err == nil {
				got, err = readAll(ctx, c, a)
			}
		}
		return err
	})
	if !bytes.Equal(got, want) {
		i := 0
		for got[i] == want[i] {
			i++
		}
		p.failf("%s (%d) of %d bytes at version %d differs at byte %d: %x instead of %x", name, a.Ino, len(got), a.Version, i,
			got[i:min(i+8, len(got))], want[i:min(i+8, len(got))])
	}
}

// checkAll compares the whole subtree.
func (p *player) checkAll() {
	guard(func() {
		p.note("compare everything")
		p.checkNames(p.viewer(), p.root, p.name)
		for _, n := range places(p.root) {
			p.check(p.viewer(), n)
			if n.node.dir != nil {
				p.checkNames(p.viewer(), n.node, n.path)
			}
		}
	})
}
