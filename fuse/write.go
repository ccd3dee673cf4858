package fuse

import (
	"context"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/failpoint"
)

// privBits are cleared when somebody unprivileged writes.
const privBits = syscall.S_ISUID | syscall.S_ISGID

func appends(flags uint32) bool {
	return flags&syscall.O_APPEND != 0 && flags&syscall.O_ACCMODE != syscall.O_RDONLY
}

// Write stores bytes in the cache file and its sidecar; in strict mode it also flushes them before it answers.
func (fs *FS) Write(cancel <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	ctx, done := fs.begin(cancel)
	defer done()
	h, err := fs.handles.get(in.Fh)
	if err != nil {
		return 0, status(err)
	}
	if err := h.usable(); err != nil {
		return 0, status(err)
	}
	if in.WriteFlags&fuse.WRITE_KILL_SUIDGID != 0 {
		h.f.killPriv(ctx)
	}
	// A store through a mapping carries its own offset, also when the descriptor appends.
	if appends(h.flags) && in.WriteFlags&fuse.WRITE_CACHE == 0 {
		err = h.f.append(ctx, h, data, int64(in.Offset))
	} else {
		err = h.f.write(ctx, data, int64(in.Offset))
	}
	if err == nil && fs.cfg.Consistency == Strict {
		err = h.f.flush(ctx)
	}
	if err != nil {
		return 0, status(err)
	}
	if fs.nodes.wrotePast(h.n) {
		fs.inval.changed(h.f.ino, h.f.version())
	}
	fs.count.writtenBytes.Add(uint64(len(data)))
	return uint32(len(data)), fuse.OK
}

// write puts p at off. It waits while the same bytes are on their way to the cluster.
func (f *content) write(ctx context.Context, p []byte, off int64) error {
	if off > objcache.MaxFileSize-int64(len(p)) {
		return objcache.Errorf(objcache.TooLarge, "inode %d", f.ino)
	}
	r := objcache.Range{Off: off, Len: int64(len(p))}
	unlock, err := f.ranges.lock(ctx, r)
	if err != nil {
		return err
	}
	c := f.hold()
	err = c.Write(p, off, time.Now())
	f.fs.store.Release(c)
	unlock()
	if err != nil {
		return err
	}
	f.advance(r)
	return nil
}

// append adds p at the end of the file, wherever the cluster has it; the kernel's offset may be stale. The bytes are committed when it returns.
func (f *content) append(ctx context.Context, h *handle, p []byte, kernel int64) error {
	unlock, err := f.ranges.lock(ctx, wholeFile)
	if err != nil {
		return err
	}
	defer unlock()
	if err := f.flushLocked(ctx); err != nil {
		return err
	}
	off, a, err := f.fs.backend.Append(ctx, f.ino, p, time.Now())
	if err != nil {
		return err
	}
	failpoint.Hit(failpoint.MountAppendAfter)
	c := f.hold()
	defer f.fs.store.Release(c)
	from := c.Version()
	if a.Version != from+1 || off != c.Size() {
		return f.replaceLocked(a)
	}
	if err := c.Appended(p, off, a.Version); err != nil {
		return f.replaceLocked(a)
	}
	f.fs.nodes.committed(f.ino, from, a.Version)
	f.setAttr(a)
	if off != kernel {
		f.fs.inval.misplaced(h.n)
	}
	return nil
}

// killPriv clears setuid and setgid at the cluster, if they are set. Failing to is no reason to refuse the write.
func (f *content) killPriv(ctx context.Context) {
	f.mu.Lock()
	mode := f.mu.attr.Mode
	f.mu.Unlock()
	if mode&privBits == 0 {
		return
	}
	a, err := f.fs.backend.Setattr(ctx, f.ino, objcache.SetAttr{KillPriv: true})
	if err != nil {
		f.fs.log.Error("setuid and setgid could not be cleared", "ino", f.ino, "err", err)
		return
	}
	f.current(a)
}
