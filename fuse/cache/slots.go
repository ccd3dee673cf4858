package cache

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/objcache/objcache"
)

const (
	slotBytes   = 1024 // a header and 32 ranges
	slotsOfFile = 256
	slotsSuffix = ".slots"
)

// slots are mapped files of many small sidecars: a written file costs no second file, and no mapping of its own (a process has some 65,000). A slot whose
// number of ranges is zero is free. The files are never unmapped and stay until the next process finds nothing in them.
type slots struct {
	dir string
	mu  struct {
		sync.Mutex
		files int      // the highest number of a file
		free  [][]byte // of slotBytes each
	}
}

// take returns a sidecar without ranges for the cache file path, INO-SEQ.
func (t *slots) take(path string, ino objcache.Ino, seq uint64) (*sidecar, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.mu.free) == 0 {
		if err := t.growLocked(); err != nil {
			return nil, err
		}
	}
	n := len(t.mu.free) - 1
	mem := t.mu.free[n]
	t.mu.free = t.mu.free[:n]
	s := newSidecar(mem, path, ino, seq)
	s.slots = t
	return s, nil
}

func (t *slots) growLocked() error {
	t.mu.files++
	f, err := os.OpenFile(filepath.Join(t.dir, fmt.Sprintf("%d%s", t.mu.files, slotsSuffix)), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	mem, err := mapAllocated(f, slotsOfFile*slotBytes)
	if err != nil {
		_ = os.Remove(f.Name()) // an empty file is of no use to anybody
		return err
	}
	for off := len(mem) - slotBytes; off >= 0; off -= slotBytes {
		t.mu.free = append(t.mu.free, mem[off:off+slotBytes:off+slotBytes])
	}
	return nil
}

// free takes a slot back.
func (t *slots) free(mem []byte) {
	(&sidecar{mem: mem}).put(atCount, 0)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.free = append(t.mu.free, mem)
}

// adopt reads a file of slots that an earlier process left. reopen says whether it uses a slot that has ranges; the others are free. A file without a
// slot in use is removed. An error of reopen ends it.
func (t *slots) adopt(name string, reopen func(*sidecar) (bool, error)) error {
	path := filepath.Join(t.dir, name)
	mem, err := mapFile(path)
	if errors.Is(err, objcache.Invalid) {
		return os.Remove(path) // the process ended before anything was in it
	}
	if err != nil {
		return err
	}
	var number int
	if _, err := fmt.Sscanf(name, "%d", &number); err != nil {
		number = 0 // not a name that could be made again
	}
	var free [][]byte
	used := 0
	for off := 0; off+slotBytes <= len(mem); off += slotBytes {
		s := &sidecar{mem: mem[off : off+slotBytes : off+slotBytes], slots: t}
		if s.valid() && s.count > 0 {
			ok, err := reopen(s)
			if err != nil {
				return err
			}
			if ok {
				used++
				continue
			}
		}
		s.put(atCount, 0)
		free = append(free, s.mem)
	}
	if used == 0 {
		_ = unix.Munmap(mem)
		return os.Remove(path)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.files = max(t.mu.files, number)
	t.mu.free = append(t.mu.free, free...)
	return nil
}

func isSlots(name string) bool { return strings.HasSuffix(name, slotsSuffix) }
