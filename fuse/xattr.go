package fuse

import (
	"context"
	"strings"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/objcache/objcache"
)

// special answers attributes that never reach the cluster: the kernel asks for capabilities on every write and exec, and there are no ACLs.
func special(name string) (fuse.Status, bool) {
	switch {
	case name == "security.capability":
		return fuse.ENODATA, true
	case strings.HasPrefix(name, "system.posix_acl_"):
		return fuse.ENOTSUP, true
	}
	return fuse.OK, false
}

// GetXAttr is getxattr(2).
func (fs *FS) GetXAttr(cancel <-chan struct{}, h *fuse.InHeader, name string, dest []byte) (uint32, fuse.Status) {
	if st, ok := special(name); ok {
		return 0, st
	}
	return fs.xattrBytes(cancel, h, dest, func(ctx context.Context, ino objcache.Ino) ([]byte, error) {
		return fs.backend.Getxattr(ctx, ino, name)
	})
}

// ListXAttr is listxattr(2).
func (fs *FS) ListXAttr(cancel <-chan struct{}, h *fuse.InHeader, dest []byte) (uint32, fuse.Status) {
	return fs.xattrBytes(cancel, h, dest, func(ctx context.Context, ino objcache.Ino) ([]byte, error) {
		names, err := fs.backend.Listxattr(ctx, ino)
		var list []byte
		for _, n := range names {
			list = append(append(list, n...), 0)
		}
		return list, err
	})
}

// xattrBytes copies what get returns; ERANGE, with the size needed, when dest is too small (zero: the caller only asks for the size).
func (fs *FS) xattrBytes(cancel <-chan struct{}, h *fuse.InHeader, dest []byte, get func(context.Context, objcache.Ino) ([]byte, error)) (uint32, fuse.Status) {
	ctx, done := fs.begin(cancel)
	defer done()
	n, err := fs.nodes.get(h.NodeId)
	if err != nil {
		return 0, status(err)
	}
	v, err := get(ctx, n.in.ino)
	if err != nil {
		return 0, status(err)
	}
	if len(v) > len(dest) {
		return uint32(len(v)), fuse.ERANGE
	}
	return uint32(copy(dest, v)), fuse.OK
}

// SetXAttr is setxattr(2).
func (fs *FS) SetXAttr(cancel <-chan struct{}, in *fuse.SetXAttrIn, name string, value []byte) fuse.Status {
	if _, ok := special(name); ok {
		return fuse.ENOTSUP
	}
	return fs.inDir(cancel, in.NodeId, func(ctx context.Context, ino objcache.Ino) error {
		return fs.backend.Setxattr(ctx, ino, name, append([]byte(nil), value...), in.Flags)
	})
}

// RemoveXAttr is removexattr(2).
func (fs *FS) RemoveXAttr(cancel <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	if st, ok := special(name); ok {
		return st
	}
	return fs.inDir(cancel, h.NodeId, func(ctx context.Context, ino objcache.Ino) error { return fs.backend.Removexattr(ctx, ino, name) })
}
