// Package cache is the node-local cache of a mount: one sparse file per inode and version, on the node's disk.
// It promises that bytes of a version are that version's (CRC-32C per 64 KiB), that an acknowledged write outlives the process, and to stay near its budget.
// It does not know the cluster, the kernel or FUSE: its user fetches and flushes.
package cache

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/objcache/objcache"
)

const sidecarSuffix = ".dirty"

// Config says where the cache lies and how large it may grow.
type Config struct {
	Dir    string // made if missing; one process at a time
	Bytes  int64  // budget of present bytes; files that are open or dirty may exceed it
	Logger *slog.Logger
}

// Store is the set of cached files of one mount.
type Store struct {
	cfg  Config
	lock *os.File

	slots  slots
	spares spares

	mu struct {
		sync.Mutex
		files map[objcache.Ino]*File
		bytes int64
		room  int64 // what bytes should not exceed
		clock uint64
		seq   uint64
		shut  bool
	}
	wake    chan struct{}
	done    chan struct{}
	evicted uint64
}

// Open takes the directory, forgets clean files of an earlier process and returns, besides the store, what that process had written and
// not committed. Each leftover is referenced: Release or Remove it. Unavailable: another process uses the directory.
func Open(cfg Config) (*Store, []Leftover, error) {
	if err := os.MkdirAll(filepath.Join(cfg.Dir, "files"), 0o700); err != nil {
		return nil, nil, objcache.Errorf(objcache.IO, "cache directory: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(cfg.Dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, nil, objcache.Errorf(objcache.IO, "cache directory: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		return nil, nil, objcache.Errorf(objcache.Unavailable, "cache directory %s is in use by another process", cfg.Dir)
	}
	s := &Store{cfg: cfg, lock: lock, wake: make(chan struct{}, 1), done: make(chan struct{})}
	s.mu.files = make(map[objcache.Ino]*File)
	s.mu.room = cfg.Bytes
	s.slots.dir = filepath.Join(cfg.Dir, "files")
	left, err := s.recover()
	if err != nil {
		lock.Close()
		return nil, nil, err
	}
	go s.evictLoop()
	return s, left, nil
}

// Close stops eviction and lets go of the directory. Files with pending writes stay for the next process; descriptors that are referenced stay valid.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.mu.shut {
		s.mu.Unlock()
		return nil
	}
	s.mu.shut = true
	var idle []*File
	for ino, f := range s.mu.files {
		if f.refs == 0 {
			delete(s.mu.files, ino)
			idle = append(idle, f)
		}
	}
	s.mu.Unlock()
	close(s.wake)
	<-s.done
	for _, f := range idle {
		f.discard(!f.Pending().Due())
	}
	return s.lock.Close()
}

// Acquire returns the cached file of an inode, referenced, or nil.
func (s *Store) Acquire(ino objcache.Ino) *File {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.mu.files[ino]
	if f != nil {
		s.useLocked(f)
	}
	return f
}

func (s *Store) useLocked(f *File) {
	f.refs++
	s.mu.clock++
	f.used = s.mu.clock
}

// Create makes an empty file for a version, referenced. It takes the place of the inode's earlier file, which lives on for those who hold it.
func (s *Store) Create(ino objcache.Ino, version uint64, size int64) *File {
	f := s.make(ino, version, size)
	s.put(f)
	return f
}

// Rebase makes a file for a newer version with what is pending in old on top, referenced, and forgets old. A crash meanwhile loses nothing pending.
func (s *Store) Rebase(old *File, version uint64, size int64) (*File, error) {
	f := s.make(old.ino, version, size)
	if err := f.carry(old); err != nil {
		s.Remove(f)
		return nil, err
	}
	s.put(f)
	return f, nil
}

// make creates a file that is in no index yet.
func (s *Store) make(ino objcache.Ino, version uint64, size int64) *File {
	s.mu.Lock()
	s.mu.seq++
	seq := s.mu.seq
	s.mu.Unlock()
	path := s.filePath(fmt.Sprintf("%d-%d", ino, seq))
	f := &File{store: s, ino: ino, seq: seq, path: path, disk: disk{store: s, path: path, size: size}}
	f.mu.version, f.mu.size = version, size
	return f
}

func (s *Store) put(f *File) {
	s.mu.Lock()
	old := s.mu.files[f.ino]
	s.mu.files[f.ino] = f
	s.useLocked(f)
	gone := old != nil && s.dropLocked(old)
	s.mu.Unlock()
	if old != nil {
		old.removed(gone)
	}
}

func (s *Store) filePath(name string) string { return filepath.Join(s.cfg.Dir, "files", name) }

// Hold takes one more reference.
func (s *Store) Hold(f *File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.refs++
}

// Release gives a reference back.
func (s *Store) Release(f *File) {
	s.mu.Lock()
	f.refs--
	if f.refs < 0 {
		s.mu.Unlock() // whoever recovers shall not hang as well
		panic(fmt.Sprintf("cache: inode %d has %d references", f.ino, f.refs))
	}
	gone := f.refs == 0 && (f.unlinked || s.mu.shut)
	keep := !f.unlinked
	if gone && s.mu.files[f.ino] == f {
		delete(s.mu.files, f.ino)
	}
	if f.refs == 0 && !gone {
		f.disk.idle()
	}
	over := s.mu.bytes > s.mu.room
	s.mu.Unlock()
	switch {
	case gone:
		f.discard(!keep || !f.Pending().Due())
	case over:
		s.kick()
	}
}

// Remove forgets the file now, pending writes included; who holds it may go on reading.
func (s *Store) Remove(f *File) {
	s.mu.Lock()
	gone := s.dropLocked(f)
	s.mu.Unlock()
	f.removed(gone)
}

// dropLocked takes f out of the index and reports whether nobody holds it. The caller then calls removed, without the lock.
func (s *Store) dropLocked(f *File) bool {
	if s.mu.files[f.ino] == f {
		delete(s.mu.files, f.ino)
	}
	f.unlinked = true
	s.mu.bytes -= f.counted
	f.counted = 0
	return f.refs == 0
}

// removed takes the names of a file away that is in no index any more, and with discard the file.
func (f *File) removed(discard bool) {
	if discard {
		f.discard(true)
		return
	}
	f.disk.unlink()
	f.unlinkSidecar()
}

// discard closes the file and, when unlink is set, removes it.
func (f *File) discard(unlink bool) {
	f.io.Lock()
	defer f.io.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.side != nil && (unlink || f.mu.side.slots == nil) { // a slot with writes in it is for the next process
		f.mu.side.drop()
	}
	f.mu.side = nil
	if unlink {
		f.unlinkSidecar()
	}
	f.disk.discard(unlink)
}

func (f *File) unlinkSidecar() {
	if f.ownSidecar.Swap(false) {
		_ = os.Remove(f.path + sidecarSuffix)
	}
}

// account updates what f counts against the budget. The caller does not hold f.mu.
func (s *Store) account(f *File) {
	n := f.Present()
	s.mu.Lock()
	if !f.unlinked {
		s.mu.bytes += n - f.counted
		f.counted = n
	}
	over := s.mu.bytes > s.mu.room
	s.mu.Unlock()
	if over {
		s.kick()
	}
}

// Usage is the state of the budget.
type Usage struct {
	Bytes, Budget, Dirty int64
	Files                int
	Evicted              uint64 // files since the start
}

// Usage sums up the cache.
func (s *Store) Usage() Usage {
	s.mu.Lock()
	u := Usage{Bytes: s.mu.bytes, Budget: s.cfg.Bytes, Files: len(s.mu.files), Evicted: s.evicted}
	files := make([]*File, 0, len(s.mu.files))
	for _, f := range s.mu.files {
		files = append(files, f)
	}
	s.mu.Unlock()
	for _, f := range files {
		p := f.Pending()
		u.Dirty += p.Dirty.Bytes() + p.Staged.Bytes()
	}
	return u
}

func isSidecar(name string) bool { return strings.HasSuffix(name, sidecarSuffix) }
