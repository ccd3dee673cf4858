package fuse

import "github.com/hanwen/go-fuse/v2/fuse"

// statfsBlock is f_frsize.
const statfsBlock = 4096

// StatFs is df(1).
func (fs *FS) StatFs(cancel <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	ctx, done := fs.begin(cancel)
	defer done()
	s, err := fs.backend.Statfs(ctx)
	if err != nil {
		return status(err)
	}
	out.Bsize, out.Frsize, out.NameLen = statfsBlock, statfsBlock, 255
	out.Blocks, out.Bfree, out.Bavail = s.Capacity/statfsBlock, s.Free/statfsBlock, s.Free/statfsBlock
	out.Files, out.Ffree = s.Inodes, 1<<32
	return fuse.OK
}
