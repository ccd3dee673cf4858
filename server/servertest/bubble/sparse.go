package bubble

import (
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/objcache/objcache/server/chunk"
)

// sparse is the disk of chunks: like Pebble's crashable file system, but files may have holes, and chunk files are nearly all hole. What was not synced
// may be lost in a crash, page by page and name by name.
type sparse struct {
	before func(errorfs.Op) error // of every writing operation
	mu     struct {
		sync.Mutex
		names  map[string]*sparseFile
		synced map[string]*sparseFile
	}
}

const page = 4096

// sparseFile is guarded by the lock of its file system. A page is never changed once it is written.
type sparseFile struct {
	pages, synced    map[int64][]byte
	size, syncedSize int64
}

func newSparse() *sparse {
	s := &sparse{}
	s.mu.names, s.mu.synced = map[string]*sparseFile{}, map[string]*sparseFile{}
	return s
}

var _ chunk.FS = (*sparse)(nil)

// freeze runs f while nothing changes, and returns what a crash leaves then.
func (s *sparse) freeze(percent int, rng *rand.Rand, f func()) *sparse {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	survives := func() bool { return percent > 0 && rng.IntN(100) < percent }
	c := newSparse()
	copies := map[*sparseFile]*sparseFile{}
	for _, n := range slices.Sorted(maps.Keys(s.mu.names)) {
		if x := s.mu.names[n]; s.mu.synced[n] != x && !survives() {
			continue
		} else if copies[x] == nil {
			copies[x] = x.crashed(survives)
		}
		c.mu.names[n] = copies[s.mu.names[n]]
	}
	for _, n := range slices.Sorted(maps.Keys(s.mu.synced)) {
		if c.mu.names[n] != nil || s.mu.names[n] == nil && survives() {
			continue
		}
		x := s.mu.synced[n]
		if copies[x] == nil {
			copies[x] = x.crashed(survives)
		}
		c.mu.names[n] = copies[x]
	}
	c.mu.synced = maps.Clone(c.mu.names)
	return c
}

func (x *sparseFile) crashed(survives func() bool) *sparseFile {
	c := &sparseFile{pages: maps.Clone(x.synced), size: x.syncedSize}
	if x.size != x.syncedSize && survives() {
		c.size = x.size
	}
	for _, i := range slices.Sorted(maps.Keys(x.pages)) {
		if i*page < c.size && !same(x.pages[i], x.synced[i]) && survives() {
			c.pages[i] = x.pages[i]
		}
	}
	c.synced, c.syncedSize = maps.Clone(c.pages), c.size
	return c
}

func same(a, b []byte) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }

func (s *sparse) op(k errorfs.OpKind, name string) error {
	return s.before(errorfs.Op{Kind: k, Path: name})
}

func (s *sparse) MkdirAll(string) error { return nil } // there is one directory, and it is there
func (s *sparse) Direct(string) bool    { return false }

func (s *sparse) Open(name string, create, _ bool) (chunk.File, error) {
	if create {
		if err := s.op(errorfs.OpCreate, name); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.mu.names[name]
	if x == nil && !create {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	if x == nil {
		x = &sparseFile{pages: map[int64][]byte{}, synced: map[int64][]byte{}}
		s.mu.names[name] = x
	}
	return &sparseHandle{s: s, x: x, name: name}, nil
}

func (s *sparse) Rename(from, to string) error {
	if err := s.op(errorfs.OpRename, from); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.mu.names[from]
	if x == nil {
		return &fs.PathError{Op: "rename", Path: from, Err: fs.ErrNotExist}
	}
	delete(s.mu.names, from)
	s.mu.names[to] = x
	return nil
}

func (s *sparse) Remove(name string) error {
	if err := s.op(errorfs.OpRemove, name); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.names[name] == nil {
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
	}
	delete(s.mu.names, name)
	return nil
}

func (s *sparse) List(dir string) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, n := range slices.Sorted(maps.Keys(s.mu.names)) {
		if path.Dir(n) == strings.TrimSuffix(dir, "/") {
			out = append(out, path.Base(n))
		}
	}
	return out, nil
}

func (s *sparse) SyncDir(dir string) error {
	if err := s.op(errorfs.OpFileSync, path.Join(dir, "directory")); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.synced = maps.Clone(s.mu.names)
	return nil
}

type sparseHandle struct {
	s    *sparse
	x    *sparseFile
	name string
}

func (h *sparseHandle) ReadAt(p []byte, off int64) (int, error) {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	n := int(max(0, min(int64(len(p)), h.x.size-off)))
	for at := 0; at < n; {
		in := (off + int64(at)) % page
		k := min(n-at, int(page-in))
		if b := h.x.pages[(off+int64(at))/page]; b != nil {
			copy(p[at:at+k], b[in:])
		} else {
			clear(p[at : at+k])
		}
		at += k
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (h *sparseHandle) WriteAt(p []byte, off int64) (int, error) {
	if err := h.s.op(errorfs.OpFileWriteAt, h.name); err != nil {
		return 0, err
	}
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	for at := 0; at < len(p); {
		i, in := (off+int64(at))/page, (off+int64(at))%page
		fresh := make([]byte, page)
		copy(fresh, h.x.pages[i])
		at += copy(fresh[in:], p[at:])
		h.x.pages[i] = fresh
	}
	h.x.size = max(h.x.size, off+int64(len(p)))
	return len(p), nil
}

func (h *sparseHandle) Sync() error {
	if err := h.s.op(errorfs.OpFileSync, h.name); err != nil {
		return err
	}
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	h.x.synced, h.x.syncedSize = maps.Clone(h.x.pages), h.x.size
	return nil
}

func (h *sparseHandle) Allocate(off, n int64) error {
	if err := h.s.op(errorfs.OpFilePreallocate, h.name); err != nil {
		return err
	}
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	h.x.size = max(h.x.size, off+n)
	return nil
}

func (h *sparseHandle) Size() (int64, error) {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	return h.x.size, nil
}

func (h *sparseHandle) Close() error { return nil }
