package fuse

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/objcache/objcache"
)

// handle is one open file description of a regular file.
type handle struct {
	n   *node
	f   *content
	way way
	// flags are those of open(2).
	flags uint32
	// lost: a lock taken through it went with a session. Nothing is read or written any more until it is closed.
	lost atomic.Bool
}

// usable refuses with EIO what a description without its locks must not do.
func (h *handle) usable() error {
	if h.lost.Load() {
		return objcache.Errorf(objcache.Fenced, "inode %d was locked through this descriptor", h.f.ino)
	}
	return nil
}

func (h *handle) writable() bool { return h.flags&syscall.O_ACCMODE != syscall.O_RDONLY }

type handleTable struct {
	mu   sync.RWMutex
	byID map[uint64]*handle
	last uint64
}

func (t *handleTable) add(h *handle) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last++
	t.byID[t.last] = h
	return t.last
}

func (t *handleTable) get(fh uint64) (*handle, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if h := t.byID[fh]; h != nil {
		return h, nil
	}
	return nil, objcache.Errorf(objcache.Stale, "handle %d", fh)
}

func (t *handleTable) remove(fh uint64) *handle {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.byID[fh]
	delete(t.byID, fh)
	return h
}

func (t *handleTable) all() []uint64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.Collect(maps.Keys(t.byID))
}

func (t *handleTable) count() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.byID)
}
