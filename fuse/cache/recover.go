package cache

import (
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
	for _, e := range names {
		if !isSidecar(e.Name()) {
			continue
		}
		base := strings.TrimSuffix(e.Name(), sidecarSuffix)
		l, ok := s.reopen(base)
		if ok {
			left = append(left, l)
			keep[base], keep[e.Name()] = true, true
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

func (s *Store) reopen(base string) (Leftover, bool) {
	path := s.filePath(base)
	side, err := openSidecar(path + sidecarSuffix)
	if err != nil {
		s.cfg.Logger.Error("a sidecar of an earlier process is unreadable", "file", path, "err", err)
		return Leftover{}, false
	}
	fd, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil || side.count == 0 {
		side.unmap()
		if err == nil {
			fd.Close()
		}
		return Leftover{}, false
	}
	f := &File{store: s, ino: objcache.Ino(side.get(atIno)), path: path, os: fd, refs: 1}
	l := Leftover{File: f, Base: side.get(atVersion), Ranges: side.ranges(), Size: int64(side.get(atSize)), Mtime: side.mtime()}
	l.Dir, l.Name = side.name()
	f.mu.version, f.mu.size, f.mu.side, f.mu.mtime, f.mu.changed = l.Base, l.Size, side, l.Mtime, l.Mtime
	f.mu.dirty, f.mu.grown = l.Ranges.Clone(), true
	return l, true
}
