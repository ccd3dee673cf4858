package fusetest

import (
	"context"
	"sort"
	"time"

	"github.com/objcache/objcache"
)

// Getattr returns the committed attributes.
func (b *Backend) Getattr(ctx context.Context, ino objcache.Ino) (objcache.Attr, error) {
	if err := b.enter(ctx, "Getattr", ino); err != nil {
		return objcache.Attr{}, err
	}
	defer b.c.mu.Unlock()
	i, err := b.c.get(ino)
	if err != nil {
		return objcache.Attr{}, err
	}
	return i.attr, nil
}

// Setattr changes attributes; a Size makes a new version.
func (b *Backend) Setattr(ctx context.Context, ino objcache.Ino, set objcache.SetAttr) (objcache.Attr, error) {
	if err := b.enter(ctx, "Setattr", ino); err != nil {
		return objcache.Attr{}, err
	}
	defer b.c.mu.Unlock()
	i, err := b.c.get(ino)
	if err != nil {
		return objcache.Attr{}, err
	}
	a := &i.attr
	a.Ctime = time.Now()
	if set.KillPriv {
		a.Mode &^= 0o6000
	}
	if set.Mode != nil {
		a.Mode = a.Mode&objcache.ModeMask | *set.Mode&0o7777
	}
	for _, p := range []struct{ to, from *uint32 }{{&a.UID, set.UID}, {&a.GID, set.GID}} {
		if p.from != nil {
			*p.to = *p.from
		}
	}
	if set.Size != nil {
		i.resize(b.c.Discard, *set.Size)
		a.Version++
		a.Mtime = a.Ctime
	}
	for _, p := range []struct{ to, from *time.Time }{{&a.Atime, set.Atime}, {&a.Mtime, set.Mtime}} {
		if p.from != nil {
			*p.to = *p.from
		}
	}
	return i.attr, nil
}

func (i *inode) resize(discard bool, size int64) {
	i.attr.Size = size
	if discard {
		return
	}
	if size <= int64(len(i.data)) {
		i.data = i.data[:size:size]
		return
	}
	i.data = append(i.data, make([]byte, size-int64(len(i.data)))...)
}

// Getxattr returns one extended attribute.
func (b *Backend) Getxattr(ctx context.Context, ino objcache.Ino, name string) ([]byte, error) {
	if err := b.enter(ctx, "Getxattr", ino); err != nil {
		return nil, err
	}
	defer b.c.mu.Unlock()
	i, err := b.c.get(ino)
	if err != nil {
		return nil, err
	}
	v, ok := i.xattrs[name]
	if !ok {
		return nil, objcache.Errorf(objcache.NoAttr, "%q", name)
	}
	return v, nil
}

// Listxattr returns the names of all extended attributes.
func (b *Backend) Listxattr(ctx context.Context, ino objcache.Ino) ([]string, error) {
	if err := b.enter(ctx, "Listxattr", ino); err != nil {
		return nil, err
	}
	defer b.c.mu.Unlock()
	i, err := b.c.get(ino)
	if err != nil {
		return nil, err
	}
	var names []string
	for n := range i.xattrs {
		names = append(names, n)
	}
	sort.Strings(names)
	return names, nil
}

// Setxattr sets one extended attribute of at most 2 KiB.
func (b *Backend) Setxattr(ctx context.Context, ino objcache.Ino, name string, value []byte, flags uint32) error {
	if err := b.enter(ctx, "Setxattr", ino); err != nil {
		return err
	}
	defer b.c.mu.Unlock()
	i, err := b.c.get(ino)
	if err != nil {
		return err
	}
	_, ok := i.xattrs[name]
	switch {
	case flags == 1 && ok:
		return objcache.Errorf(objcache.Exist, "%q", name)
	case flags == 2 && !ok:
		return objcache.Errorf(objcache.NoAttr, "%q", name)
	case len(value) > 2<<10:
		return objcache.Errorf(objcache.NoSpace, "%q", name)
	}
	if i.xattrs == nil {
		i.xattrs = make(map[string][]byte)
	}
	i.xattrs[name] = value
	return nil
}

// Removexattr removes one extended attribute.
func (b *Backend) Removexattr(ctx context.Context, ino objcache.Ino, name string) error {
	if err := b.enter(ctx, "Removexattr", ino); err != nil {
		return err
	}
	defer b.c.mu.Unlock()
	i, err := b.c.get(ino)
	if err != nil {
		return err
	}
	if _, ok := i.xattrs[name]; !ok {
		return objcache.Errorf(objcache.NoAttr, "%q", name)
	}
	delete(i.xattrs, name)
	return nil
}
