package chunk

import (
	"path/filepath"
	"strings"

	"github.com/objcache/objcache"
	"golang.org/x/sync/errgroup"
)

// load finds the files of an earlier life. Nothing is deleted before Started.
func (s *Store) load() error {
	names, err := s.fs.List(s.dir)
	if err != nil {
		return diskError(err, "list", s.dir)
	}
	var g errgroup.Group
	g.SetLimit(8)
	for _, name := range names {
		id, k, ok := parseName(name)
		if !ok {
			if strings.HasSuffix(name, ".tmp") {
				_ = s.fs.Remove(filepath.Join(s.dir, name)) // left half-written; harmless if it stays
			}
			continue
		}
		if id >= s.ids.next {
			return objcache.Errorf(objcache.Corrupt, "%s holds %s, but numbers were given out below %d only", s.dir, name, s.ids.next)
		}
		g.Go(func() error { return s.loadFile(&file{id: id, kind: k, live: map[int64]int64{}}) })
	}
	return g.Wait()
}

func (s *Store) loadFile(f *file) error {
	name := f.name(s.dir)
	h, err := s.handles.acquire(name, false, false)
	if err != nil {
		return diskError(err, "open", name)
	}
	defer s.handles.release(h)
	if f.kind == segmentKind {
		if f.size, err = h.Size(); err != nil {
			return diskError(err, "stat", name)
		}
	} else {
		page := getBuffer(pageSize)
		if n, _ := h.ReadAt(page, objcache.ChunkSize); n == pageSize { // a dirty file ends before
			f.key, f.clean = decodeTrailer(page)
		}
		putBuffer(page)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.files[f.id] = f
	if f.clean != nil {
		s.loadCleanLocked(f)
	}
	return nil
}

// loadCleanLocked puts a clean file into the cache. Of two for one chunk the younger counts.
func (s *Store) loadCleanLocked(f *file) {
	old := s.mu.clean[f.key]
	if old != nil && old.id > f.id {
		f.clean = nil
		return
	}
	if old != nil {
		s.dropCleanLocked(old)
	}
	f.adopted = true
	s.mu.clean[f.key] = f
	s.mu.usage.Clean += f.clean.taken
	s.budget.forceClean(f.clean.taken)
}
