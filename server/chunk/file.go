package chunk

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/objcache/objcache"
)

// kind is the suffix of a file's name.
type kind byte

const (
	chunkKind   kind = 'c' // bytes of one chunk at their offset in it: a dirty file, or a clean one when it has a trailer
	segmentKind kind = 's' // appended extents of any chunk
)

// file is one local file. Its fields are guarded by Store.mu unless they say otherwise.
type file struct {
	id   uint64 // immutable
	kind kind   // immutable
	size int64  // segments: bytes allocated

	// live holds the length of every place that is not dead, by offset; a freed one stays until its free is durable.
	live    map[int64]int64
	pending int // writes under way

	key     objcache.ChunkKey // chunk files: immutable once writes go there
	alloc   bitmap            // dirty files: blocks that were ever written
	tail    int64             // segments: where the next append goes
	clean   *cleanState       // what is present of a clean file; nil for a dirty one
	adopted bool              // was or is a clean file: live bytes are not counted as dirty, and no write goes there

	named    bool        // guarded by syncState.mu: its name was in a round of Sync
	used     atomic.Bool // clean files: read since the clock's hand passed
	pinned   atomic.Bool // clean files: held, so not evictable
	removing bool        // out of all maps; only handles still know it
}

func (f *file) name(dir string) string { return filepath.Join(dir, fileName(f.id, f.kind)) }

func fileName(id uint64, k kind) string { return fmt.Sprintf("%016x.%c", id, k) }

// parseName is the reverse of fileName.
func parseName(name string) (id uint64, k kind, ok bool) {
	num, suffix, found := strings.Cut(name, ".")
	if !found || len(suffix) != 1 || suffix != "c" && suffix != "s" {
		return 0, 0, false
	}
	id, err := strconv.ParseUint(num, 16, 64)
	return id, kind(suffix[0]), err == nil && len(num) == 16
}

// held reports whether bytes of the file are dirty, or dead but not durably so.
func (f *file) held() bool { return len(f.live) > 0 || f.pending > 0 }

// addLiveLocked counts a place; twice is once.
func (s *Store) addLiveLocked(f *file, off, n int64) {
	if _, twice := f.live[off]; twice {
		return
	}
	f.live[off] = n
	f.pinned.Store(true)
	s.countLiveLocked(f, n)
}

// dropLiveLocked forgets a place.
func (s *Store) dropLiveLocked(f *file, off int64) {
	n, ok := f.live[off]
	if !ok {
		return
	}
	delete(f.live, off)
	s.countLiveLocked(f, -n)
	if !f.held() {
		s.deadLocked(f)
	}
}

// countLiveLocked keeps Usage. The live bytes of an adopted file count as clean.
func (s *Store) countLiveLocked(f *file, n int64) {
	switch {
	case f.kind == segmentKind:
		s.mu.usage.Staged += n
	case !f.adopted:
		s.mu.usage.Dirty += n
	}
}

// deadLocked hands a file without live bytes to the reclaimer. A clean one merely becomes evictable.
func (s *Store) deadLocked(f *file) {
	if !s.mu.started || f == s.mu.active || f.removing {
		return
	}
	if f.clean != nil {
		f.pinned.Store(false)
		s.budget.nudge()
		return
	}
	f.removing = true
	if s.mu.dirty[f.key] == f {
		delete(s.mu.dirty, f.key)
	}
	s.mu.dead = append(s.mu.dead, f)
	select {
	case s.tidy <- struct{}{}:
	default:
	}
}
