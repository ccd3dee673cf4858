package cache

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/objcache/objcache"
)

// Leftover is what an earlier process had written to one file and not committed.
type Leftover struct {
	File   *File // referenced; holds only the bytes in Ranges
	Base   uint64
	Ranges Ranges
	Size   int64
	Mtime  time.Time
	Dir    objcache.Ino // where the file was opened, zero if unknown
	Name   string
}

// recover finds leftovers and removes every other file.
func (s *Store) recover() ([]Leftover, error) {
	dir := filepath.Join(s.cfg.Dir, "files")
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil, objcache.Errorf(objcache.IO, "cache directory: %w", err)
	}
	keep := map[string]bool{}
	var left []Leftover
	adopt := func(side *sidecar) bool {
		l, ok := s.reopen(side)
		if ok {
			left = append(left, l)
			keep[filepath.Base(side.path)] = true
		}
		return ok
	}
	for _, e := range names {
		if isSidecar(e.Name()) && s.adoptFile(strings.TrimSuffix(e.Name(), sidecarSuffix), adopt) {
			keep[e.Name()] = true
		}
	}
	for _, e := range names {
		if !isSlots(e.Name()) {
			continue
		}
		keep[e.Name()] = true
		err := s.slots.adopt(e.Name(), func(side *sidecar) bool {
			name := fmt.Sprintf("%d-%d", side.get(atIno), side.get(atSeq))
			side.path = s.filePath(name)
			return !keep[name] && adopt(side) // not if its own file has taken over
		})
		if err != nil {
			s.cfg.Logger.Error("sidecars of an earlier process are unreadable", "file", s.filePath(e.Name()), "err", err)
		}
	}
	for _, e := range names {
		if !keep[e.Name()] {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
		if _, seq, ok := strings.Cut(strings.TrimSuffix(e.Name(), sidecarSuffix), "-"); ok {
			if n, err := strconv.ParseUint(seq, 10, 64); err == nil {
				s.mu.seq = max(s.mu.seq, n)
			}
		}
	}
	return left, nil
}

func (s *Store) adoptFile(base string, adopt func(*sidecar) bool) bool {
	side, err := openSidecar(s.filePath(base))
	if err != nil {
		s.cfg.Logger.Error("a sidecar of an earlier process is unreadable", "file", s.filePath(base), "err", err)
		return false
	}
	if side.count > 0 && adopt(side) {
		return true
	}
	side.drop()
	return false
}

// reopen takes over the cache file of a sidecar with ranges; false: it is not there any more.
func (s *Store) reopen(side *sidecar) (Leftover, bool) {
	fd, err := os.OpenFile(side.path, os.O_RDWR, 0)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			s.cfg.Logger.Error("writes of an earlier process are unreadable", "file", side.path, "err", err)
		}
		return Leftover{}, false
	}
	st, err := fd.Stat()
	if err != nil {
		_ = fd.Close()
		s.cfg.Logger.Error("writes of an earlier process are unreadable", "file", side.path, "err", err)
		return Leftover{}, false
	}
	size := st.Size()
	f := &File{store: s, ino: objcache.Ino(side.get(atIno)), seq: side.get(atSeq), path: side.path, refs: 1,
		disk: disk{store: s, path: side.path, os: fd, made: true, size: size}}
	l := Leftover{File: f, Base: side.get(atVersion), Ranges: side.ranges(), Size: int64(side.get(atSize)), Mtime: side.mtime()}
	l.Dir, l.Name = side.name()
	f.ownSidecar.Store(side.slots == nil)
	f.mu.version, f.mu.size, f.mu.side, f.mu.mtime, f.mu.changed = l.Base, l.Size, side, l.Mtime, l.Mtime
	f.mu.dirty, f.mu.grown = l.Ranges.Clone(), true
	return l, true
}
