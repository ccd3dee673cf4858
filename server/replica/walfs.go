package replica

import (
	"io/fs"
	"math"
	"slices"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft-wal/types"

	"github.com/objcache/objcache/failpoint"
)

// walFS gives raft-wal its files. Unlike raft-wal's own it makes a segment's existence and size durable before the first
// append, so that a missing or shortened file is known to be damage, and it writes the zeros of a new segment at once: an append then
// overwrites allocated blocks, which halves the cost of its fdatasync.
type walFS struct {
	fs   vfs.FS
	meta *metaStore
	stop *failStop
	done *atomic.Uint64 // fdatasyncs of segments
}

var _ types.VFS = (*walFS)(nil)

// ListDir returns the names in dir in lexical order.
func (w *walFS) ListDir(dir string) ([]string, error) {
	names, err := w.fs.List(dir)
	slices.Sort(names)
	return names, err
}

// Create makes a segment of size zero bytes; it, and the knowledge that it exists, are durable on return.
func (w *walFS) Create(dir, name string, size uint64) (types.WritableFile, error) {
	if size > math.MaxInt32 {
		return nil, fs.ErrInvalid
	}
	path := w.fs.PathJoin(dir, name)
	if _, err := w.fs.Stat(path); err == nil {
		return nil, &fs.PathError{Op: "create", Path: path, Err: fs.ErrExist}
	}
	f, err := w.fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, w.stop.check(err, "create", path)
	}
	wf := &walFile{File: f, path: path, stop: w.stop, done: w.done}
	if err = zero(f, 0, int64(size)); err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = syncDir(w.fs, dir)
	}
	if err == nil {
		failpoint.Hit(failpoint.LogSegmentMade)
		err = w.meta.markMade(name)
		failpoint.Hit(failpoint.LogSegmentKnown)
	}
	if err != nil {
		_ = f.Close() // the first error says more
		return nil, w.stop.check(err, "create", path)
	}
	return wf, nil
}

// Delete removes a segment that no committed metadata names; durable on return.
func (w *walFS) Delete(dir, name string) error {
	if err := w.fs.Remove(w.fs.PathJoin(dir, name)); err != nil {
		return err
	}
	return w.stop.check(syncDir(w.fs, dir), "sync", dir)
}

// OpenReader opens a sealed segment.
func (w *walFS) OpenReader(dir, name string) (types.ReadableFile, error) {
	return w.fs.Open(w.fs.PathJoin(dir, name))
}

// OpenWriter opens the tail. OpenReadWrite creates what is missing, so existence is asked first.
func (w *walFS) OpenWriter(dir, name string) (types.WritableFile, error) {
	path := w.fs.PathJoin(dir, name)
	if _, err := w.fs.Stat(path); err != nil {
		return nil, err
	}
	f, err := w.fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, err
	}
	// The process may have died between making the file and syncing the directory (raft-wal's own file system forgets this).
	if err := syncDir(w.fs, dir); err != nil {
		return nil, w.stop.check(err, "sync", dir)
	}
	return &walFile{File: f, path: path, stop: w.stop, done: w.done}, nil
}

// walFile is a segment being written; the first failure stops everything.
type walFile struct {
	vfs.File
	path string
	stop *failStop
	done *atomic.Uint64
}

func (f *walFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.stop.err(); err != nil {
		return 0, err
	}
	n, err := f.File.WriteAt(p, off)
	return n, f.stop.check(err, "write", f.path)
}

// Sync makes what was written durable. The size never changes within a segment's limit, and fdatasync covers it when it does.
func (f *walFile) Sync() error {
	if err := f.stop.err(); err != nil {
		return err
	}
	f.done.Add(1)
	failpoint.Hit(failpoint.LogWritten)
	err := f.SyncData()
	failpoint.Hit(failpoint.LogSynced)
	return f.stop.check(err, "fdatasync", f.path)
}

// zero writes n zero bytes at off.
func zero(f vfs.File, off, n int64) error {
	for n > 0 {
		// A fresh buffer each time: vfs.File implementations may scribble on it.
		k := min(n, 1<<20)
		if _, err := f.WriteAt(make([]byte, k), off); err != nil {
			return err
		}
		off, n = off+k, n-k
	}
	return nil
}
