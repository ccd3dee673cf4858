package fuse

import (
	"context"
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/objcache/objcache"
)

// dirPage is how many entries one call of the backend asks for.
const dirPage = 512

// The kernel's offsets: 0 is before ".", 1 before "..", 2 + cookie behind an entry.
const firstOffset = 2

// dirHandle is an open directory with the entries that were read ahead of the kernel.
type dirHandle struct {
	ino objcache.Ino

	mu   sync.Mutex // held over the network: one reader at a time, as the kernel has it too
	next uint64     // cookie that page begins behind
	page []objcache.DirEntry
	eof  bool
	at   time.Time // when page was read
}

type dirTable struct {
	mu   sync.Mutex
	byID map[uint64]*dirHandle
	last uint64
}

// OpenDir opens a directory; nothing is read yet.
func (fs *FS) OpenDir(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	n, err := fs.nodes.get(in.NodeId)
	if err != nil {
		return status(err)
	}
	t := &fs.dirs
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last++
	t.byID[t.last] = &dirHandle{ino: n.in.ino}
	out.Fh = t.last
	return fuse.OK
}

// ReleaseDir ends an open directory.
func (fs *FS) ReleaseDir(in *fuse.ReleaseIn) {
	fs.dirs.mu.Lock()
	defer fs.dirs.mu.Unlock()
	delete(fs.dirs.byID, in.Fh)
}

// FsyncDir has nothing to do: names are committed when their call returns.
func (fs *FS) FsyncDir(<-chan struct{}, *fuse.FsyncIn) fuse.Status { return fuse.OK }

// ReadDir lists names.
func (fs *FS) ReadDir(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	return fs.readdir(cancel, in, func(e fuse.DirEntry, _ objcache.Attr) bool { return out.AddDirEntry(e) })
}

// ReadDirPlus lists names with attributes; every name but "." and ".." takes a reference, as a lookup does.
func (fs *FS) ReadDirPlus(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	n, err := fs.nodes.get(in.NodeId)
	if err != nil {
		return status(err)
	}
	return fs.readdir(cancel, in, func(e fuse.DirEntry, a objcache.Attr) bool {
		slot := out.AddDirLookupEntry(e)
		if slot == nil {
			return false
		}
		if a.Ino != 0 {
			a = fs.overlaid(a)
			fs.fillEntry(fs.nodes.ref(a, n.in.ino, e.Name), a, slot)
		}
		return true
	})
}

// overlaid is seen without waiting: an open file is shown as this mount serves it.
func (fs *FS) overlaid(a objcache.Attr) objcache.Attr {
	if f := fs.contents.find(a.Ino); f != nil {
		defer fs.contents.release(f)
		return f.overlay(a)
	}
	return a
}

func (fs *FS) readdir(cancel <-chan struct{}, in *fuse.ReadIn, add func(fuse.DirEntry, objcache.Attr) bool) fuse.Status {
	fs.dirs.mu.Lock()
	d := fs.dirs.byID[in.Fh]
	fs.dirs.mu.Unlock()
	if d == nil {
		return fuse.EBADF
	}
	off := in.Offset
	for ; off < firstOffset; off++ {
		name := [...]string{".", ".."}[off]
		if !add(fuse.DirEntry{Mode: objcache.ModeDir, Name: name, Ino: uint64(d.ino), Off: off + 1}, objcache.Attr{}) {
			return fuse.OK
		}
	}
	ctx, done := fs.begin(cancel)
	defer done()
	d.mu.Lock()
	defer d.mu.Unlock()
	return status(d.list(ctx, fs, off-firstOffset, add))
}

// list adds the entries behind cookie until add refuses one. An error after the first entry is left to the next call.
func (d *dirHandle) list(ctx context.Context, fs *FS, cookie uint64, add func(fuse.DirEntry, objcache.Attr) bool) error {
	for added := false; ; {
		if err := d.load(ctx, fs, cookie); err != nil {
			if added {
				return nil
			}
			return err
		}
		for len(d.page) > 0 {
			e := d.page[0]
			if !add(fuse.DirEntry{Mode: e.Attr.Mode, Name: e.Name, Ino: uint64(e.Attr.Ino), Off: e.Cookie + firstOffset}, e.Attr) {
				return nil
			}
			added = true
			cookie, d.next, d.page = e.Cookie, e.Cookie, d.page[1:]
		}
		if d.eof {
			return nil
		}
	}
}

// load makes page the entries behind cookie. A page is thrown away when the kernel seeks, starts again or comes too late to trust its attributes.
func (d *dirHandle) load(ctx context.Context, fs *FS, cookie uint64) error {
	fresh := d.next == cookie && cookie != 0 && time.Since(d.at) < fs.cfg.EntryTTL
	if fresh && (len(d.page) > 0 || d.eof) {
		return nil
	}
	d.page, d.eof = nil, false
	for len(d.page) == 0 && !d.eof {
		page, eof, err := fs.backend.Readdir(ctx, d.ino, cookie, dirPage)
		if err != nil {
			return err
		}
		d.page, d.eof = page, eof
		if len(page) == 0 && !eof {
			if err := ctx.Err(); err != nil {
				return err
			}
		}
	}
	d.next, d.at = cookie, time.Now()
	return nil
}
