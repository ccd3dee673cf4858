package fusetest

import (
	"context"
	"sort"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/fuse"
)

func (c *Cluster) find(dir objcache.Ino, name string) (*inode, *inode, error) {
	d, err := c.dir(dir)
	if err != nil {
		return nil, nil, err
	}
	e := d.names[name]
	if e == nil {
		return d, nil, objcache.Errorf(objcache.NotExist, "%q in %d", name, dir)
	}
	return d, c.inodes[e.ino], nil
}

// Lookup finds one name.
func (b *Backend) Lookup(ctx context.Context, dir objcache.Ino, name string) (objcache.Attr, error) {
	if err := b.enter(ctx, "Lookup", dir); err != nil {
		return objcache.Attr{}, err
	}
	defer b.c.mu.Unlock()
	_, i, err := b.c.find(dir, name)
	if err != nil {
		return objcache.Attr{}, err
	}
	return i.attr, nil
}

// Readdir lists names in the order they were made.
func (b *Backend) Readdir(ctx context.Context, dir objcache.Ino, cookie uint64, limit int) ([]objcache.DirEntry, bool, error) {
	if err := b.enter(ctx, "Readdir", dir); err != nil {
		return nil, false, err
	}
	defer b.c.mu.Unlock()
	d, err := b.c.dir(dir)
	if err != nil {
		return nil, false, err
	}
	var out []objcache.DirEntry
	for name, e := range d.names {
		if e.cookie > cookie {
			out = append(out, objcache.DirEntry{Name: name, Cookie: e.cookie, Attr: b.c.inodes[e.ino].attr})
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Cookie < out[j].Cookie })
	if len(out) > limit {
		return out[:limit], false, nil
	}
	return out, true, nil
}

// Create makes an inode of any type.
func (b *Backend) Create(ctx context.Context, dir objcache.Ino, name string, n fuse.NewNode) (objcache.Attr, error) {
	if err := b.enter(ctx, "Create", dir); err != nil {
		return objcache.Attr{}, err
	}
	defer b.c.mu.Unlock()
	d, i, err := b.c.find(dir, name)
	if d == nil {
		return objcache.Attr{}, err
	}
	if i != nil {
		return objcache.Attr{}, objcache.Errorf(objcache.Exist, "%q in %d", name, dir)
	}
	if len(name) > 255 {
		return objcache.Attr{}, objcache.Errorf(objcache.NameTooLong, "%q", name)
	}
	b.c.last++
	now := time.Now()
	i = &inode{attr: objcache.Attr{Ino: b.c.last, Mode: n.Mode, Rdev: n.Rdev, UID: n.UID, GID: n.GID, Target: n.Target, Size: int64(len(n.Target)),
		Nlink: 1, Atime: now, Mtime: now, Ctime: now, Version: 1}}
	if i.attr.IsDir() {
		i.names = make(map[string]*entry)
		i.attr.Nlink = 2
		d.attr.Nlink++
	}
	b.c.inodes[b.c.last] = i
	d.add(name, i)
	if n.Open {
		i.opens++
		b.opens[i.attr.Ino]++
	}
	return i.attr, nil
}

func (d *inode) add(name string, i *inode) {
	d.cookie++
	d.names[name] = &entry{cookie: d.cookie, ino: i.attr.Ino}
	i.parents++
	d.touched()
}

// drop removes a name and, with the last one, the inode unless it is open.
func (c *Cluster) drop(d *inode, name string, i *inode) {
	delete(d.names, name)
	i.parents--
	d.touched()
	i.attr.Ctime = time.Now()
	if i.attr.IsDir() {
		d.attr.Nlink--
		i.attr.Nlink = 0
	} else {
		i.attr.Nlink--
	}
	c.collect(i)
}

func (c *Cluster) collect(i *inode) {
	if i.parents == 0 && i.opens == 0 {
		// A directory stays: the kernel may still have it as somebody's working directory.
		if i.names == nil {
			delete(c.inodes, i.attr.Ino)
		}
	}
}

// Unlink removes a name of anything but a directory.
func (b *Backend) Unlink(ctx context.Context, dir objcache.Ino, name string) error {
	return b.remove(ctx, "Unlink", dir, name)
}

// Rmdir removes an empty directory.
func (b *Backend) Rmdir(ctx context.Context, dir objcache.Ino, name string) error {
	return b.remove(ctx, "Rmdir", dir, name)
}

func (b *Backend) remove(ctx context.Context, op string, dir objcache.Ino, name string) error {
	if err := b.enter(ctx, op, dir); err != nil {
		return err
	}
	defer b.c.mu.Unlock()
	d, i, err := b.c.find(dir, name)
	switch {
	case err != nil:
		return err
	case op == "Unlink" && i.attr.IsDir():
		return objcache.Errorf(objcache.IsDir, "%q", name)
	case op == "Rmdir" && !i.attr.IsDir():
		return objcache.Errorf(objcache.NotDir, "%q", name)
	case len(i.names) > 0:
		return objcache.Errorf(objcache.NotEmpty, "%q", name)
	}
	b.c.drop(d, name, i)
	return nil
}

// Rename moves or swaps names.
func (b *Backend) Rename(ctx context.Context, dir objcache.Ino, name string, newDir objcache.Ino, newName string, flags uint32) error {
	if err := b.enter(ctx, "Rename", dir); err != nil {
		return err
	}
	defer b.c.mu.Unlock()
	d, i, err := b.c.find(dir, name)
	if err != nil {
		return err
	}
	to, old, err := b.c.find(newDir, newName)
	if to == nil {
		return err
	}
	switch {
	case flags == 2 && old == nil:
		return objcache.Errorf(objcache.NotExist, "%q", newName)
	case flags == 2:
		d.names[name].ino, to.names[newName].ino = old.attr.Ino, i.attr.Ino
		return nil
	case flags == 1 && old != nil:
		return objcache.Errorf(objcache.Exist, "%q", newName)
	case old == i:
		return nil
	case old != nil && old.attr.IsDir() && !i.attr.IsDir():
		return objcache.Errorf(objcache.IsDir, "%q", newName)
	case old != nil && !old.attr.IsDir() && i.attr.IsDir():
		return objcache.Errorf(objcache.NotDir, "%q", newName)
	case old != nil && len(old.names) > 0:
		return objcache.Errorf(objcache.NotEmpty, "%q", newName)
	}
	if old != nil {
		b.c.drop(to, newName, old)
	}
	delete(d.names, name)
	i.parents--
	d.touched()
	to.add(newName, i)
	if i.attr.IsDir() && d != to {
		d.attr.Nlink--
		to.attr.Nlink++
	}
	i.attr.Ctime = time.Now()
	return nil
}

// Link makes another name.
func (b *Backend) Link(ctx context.Context, ino objcache.Ino, newDir objcache.Ino, newName string) (objcache.Attr, error) {
	if err := b.enter(ctx, "Link", ino); err != nil {
		return objcache.Attr{}, err
	}
	defer b.c.mu.Unlock()
	i, err := b.c.get(ino)
	if err != nil {
		return objcache.Attr{}, err
	}
	d, old, err := b.c.find(newDir, newName)
	switch {
	case d == nil:
		return objcache.Attr{}, err
	case old != nil:
		return objcache.Attr{}, objcache.Errorf(objcache.Exist, "%q", newName)
	case i.attr.IsDir():
		return objcache.Attr{}, objcache.Errorf(objcache.NotPermitted, "link a directory")
	}
	d.add(newName, i)
	i.attr.Nlink++
	i.attr.Ctime = time.Now()
	return i.attr, nil
}
