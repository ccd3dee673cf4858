package fuse

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/failpoint"
	"github.com/objcache/objcache/fuse/cache"
)

// Recover commits what an earlier process of this mount had acknowledged and not flushed. If somebody else changed the file since, those bytes become
// a file of their own beside it, <name>.objcache-conflict-<node>-<time>. Call it before the file system is served. What it returns an error for stays
// on disk and is tried again at the next start.
func (fs *FS) Recover(ctx context.Context, left []cache.Leftover) error {
	var all []error
	for _, l := range left {
		failpoint.Hit(failpoint.MountRecoverBefore)
		err := fs.recover(ctx, l)
		failpoint.Hit(failpoint.MountRecoverAfter)
		if err != nil {
			all = append(all, objcache.Errorf(objcache.KindOf(err), "recover inode %d: %w", l.File.Ino(), err))
		} else {
			fs.store.Remove(l.File)
		}
		fs.store.Release(l.File)
	}
	return errors.Join(all...)
}

func (fs *FS) recover(ctx context.Context, l cache.Leftover) error {
	ino := l.File.Ino()
	a, err := fs.backend.Getattr(ctx, ino)
	switch {
	case err == nil && a.Version == l.Base:
		_, err = fs.backend.Flush(ctx, Flush{Ino: ino, Dirty: l.Ranges, Src: l.File.Raw(), Size: l.Size, Mtime: l.Mtime})
		fs.log.Info("writes of an earlier process were committed", "ino", ino, "name", l.Name, "bytes", l.Ranges.Bytes(), "err", err)
		return err
	case err == nil:
		same, err := fs.alreadyThere(ctx, a, l)
		if err != nil || same {
			return err
		}
	case errors.Is(err, objcache.NotExist) || errors.Is(err, objcache.Stale):
		// A file that was unlinked while it was open: its bytes would be gone now without the crash as well.
		fs.log.Info("writes of an earlier process belonged to a file that is gone", "ino", ino, "name", l.Name, "bytes", l.Ranges.Bytes())
		return nil
	default:
		return err
	}
	return fs.setAside(ctx, a, l)
}

// alreadyThere reports whether the flush had happened and only its answer was lost.
func (fs *FS) alreadyThere(ctx context.Context, a objcache.Attr, l cache.Leftover) (bool, error) {
	if a.Size < l.Size {
		return false, nil
	}
	mine, theirs := make([]byte, regionSize), make([]byte, regionSize)
	for _, r := range l.Ranges {
		for off := r.Off; off < r.End(); off += regionSize {
			n := min(r.End()-off, regionSize)
			if _, err := l.File.Raw().ReadAt(mine[:n], off); err != nil {
				return false, err
			}
			got, err := fs.backend.ReadAt(ctx, a.Ino, a.Version, theirs[:n], off)
			if err != nil {
				return false, err
			}
			if !bytes.Equal(mine[:n], theirs[:got]) {
				return false, nil
			}
		}
	}
	return true, nil
}

// setAside makes the conflict file: what this mount would have made of the file as it is now.
func (fs *FS) setAside(ctx context.Context, a objcache.Attr, l cache.Leftover) error {
	name := fmt.Sprintf("%s.objcache-conflict-%s-%s", l.Name, fs.cfg.Node, l.Mtime.UTC().Format("20060102T150405.000000000Z"))
	n, err := fs.backend.Create(ctx, l.Dir, name, NewNode{Mode: a.Mode, Credentials: Credentials{UID: a.UID, GID: a.GID}})
	if errors.Is(err, objcache.Exist) {
		n, err = fs.backend.Lookup(ctx, l.Dir, name) // an earlier attempt that did not finish
	}
	if err != nil {
		return err
	}
	size := max(a.Size, l.Size)
	_, err = fs.backend.Flush(ctx, Flush{Ino: n.Ino, Dirty: []objcache.Range{{Len: size}}, Src: &mergedReader{ctx, fs.backend, a, l}, Size: size, Mtime: time.Now()})
	if err != nil {
		return err
	}
	fs.aside.add(name)
	fs.log.Error("writes that were not committed in time met a newer version and were set aside", "ino", a.Ino, "conflict", name)
	return nil
}

// mergedReader is a file of the cluster with a leftover on top.
type mergedReader struct {
	ctx     context.Context
	backend Backend
	a       objcache.Attr
	l       cache.Leftover
}

func (m *mergedReader) ReadAt(p []byte, off int64) (int, error) {
	size := max(m.a.Size, m.l.Size)
	if off >= size {
		return 0, io.EOF
	}
	p = p[:min(int64(len(p)), size-off)]
	n, err := m.backend.ReadAt(m.ctx, m.a.Ino, m.a.Version, p, off)
	if err != nil {
		return 0, err
	}
	clear(p[n:])
	for _, r := range m.l.Ranges.Within(objcache.Range{Off: off, Len: int64(len(p))}) {
		if _, err := m.l.File.Raw().ReadAt(p[r.Off-off:r.End()-off], r.Off); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}
