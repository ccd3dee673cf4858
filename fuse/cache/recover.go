package cache

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
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

// Leftover describes what is pending in a file in use, as the next process would find it.
func (f *File) Leftover(p Pending) Leftover {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := p.Dirty.Clone()
	for _, r := range p.Staged {
		all = all.Add(r)
	}
	return Leftover{File: f, Base: f.mu.version, Ranges: all, Size: p.Size, Mtime: p.Mtime, Dir: f.mu.dir, Name: f.mu.name}
}

// recover finds leftovers and removes every other file. It fails, and removes nothing, if something that may hold leftovers cannot be read.
func (s *Store) recover() ([]Leftover, error) {
	dir := filepath.Join(s.cfg.Dir, "files")
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil, objcache.Errorf(objcache.IO, "cache directory: %w", err)
	}
	keep := map[string]bool{}
	var left []Leftover
	adopt := func(side *sidecar) (bool, error) {
		l, ok, err := s.reopen(side)
		if ok {
			left = append(left, l)
			keep[filepath.Base(side.path)] = true
		}
		return ok, err
	}
	for _, e := range names {
		if !isSidecar(e.Name()) {
			continue
		}
		if keep[e.Name()], err = s.adoptFile(strings.TrimSuffix(e.Name(), sidecarSuffix), adopt); err != nil {
			return nil, err
		}
	}
	for _, e := range names {
		if !isSlots(e.Name()) {
			continue
		}
		keep[e.Name()] = true
		err := s.slots.adopt(e.Name(), func(side *sidecar) (bool, error) {
			name := fmt.Sprintf("%d-%d", side.get(atIno), side.get(atSeq))
			side.path = s.filePath(name)
			if keep[name] {
				return false, nil // its own file has taken over
			}
			return adopt(side)
		})
		if err != nil {
			return nil, objcache.Errorf(objcache.IO, "sidecars of an earlier process in %s: %w", s.filePath(e.Name()), err)
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
	// Of two for one inode, killed while one took over from the other, the later first: what the other has is in the cluster then.
	slices.SortFunc(left, func(a, b Leftover) int { return cmp.Compare(b.File.seq, a.File.seq) })
	return left, nil
}

func (s *Store) adoptFile(base string, adopt func(*sidecar) (bool, error)) (bool, error) {
	side, err := openSidecar(s.filePath(base))
	if errors.Is(err, objcache.Invalid) {
		s.cfg.Logger.Error("a sidecar of an earlier process is none", "file", s.filePath(base), "err", err)
		return false, nil
	}
	if err != nil {
		return false, objcache.Errorf(objcache.IO, "sidecar of an earlier process for %s: %w", s.filePath(base), err)
	}
	if side.count > 0 {
		if ok, err := adopt(side); ok || err != nil {
			return ok, err
		}
	}
	side.drop()
	return false, nil
}

// reopen takes over the cache file of a sidecar with ranges; false: it is not there any more. It opens nothing: there may be more than descriptors.
func (s *Store) reopen(side *sidecar) (Leftover, bool, error) {
	st, err := os.Stat(side.path)
	if errors.Is(err, fs.ErrNotExist) {
		return Leftover{}, false, nil
	}
	if err != nil {
		return Leftover{}, false, objcache.Errorf(objcache.IO, "writes of an earlier process: %w", err)
	}
	f := &File{store: s, ino: objcache.Ino(side.get(atIno)), seq: side.get(atSeq), path: side.path, refs: 1,
		disk: disk{store: s, path: side.path, made: true, size: st.Size(), lent: true}} // as that process may have done
	l := Leftover{File: f, Base: side.get(atVersion), Ranges: side.ranges(), Size: int64(side.get(atSize)), Mtime: side.mtime()}
	l.Dir, l.Name = side.name()
	f.ownSidecar.Store(side.slots == nil)
	f.mu.version, f.mu.size, f.mu.side, f.mu.mtime, f.mu.changed = l.Base, l.Size, side, l.Mtime, l.Mtime
	f.mu.dirty, f.mu.grown = l.Ranges.Clone(), true
	return l, true, nil
}
