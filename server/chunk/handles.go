package chunk

import (
	"container/list"
	"errors"
	"sync"
)

// handles keeps a bounded number of files open. A handle in use stays usable whatever happens to the file's name or to the bound.
type handles struct {
	fs  FS
	max int
	mu  struct {
		sync.Mutex
		open map[handleKey]*handle
		idle list.List // of *handle, least recently used first
	}
}

type handleKey struct {
	name   string
	direct bool
}

type handle struct {
	File
	key  handleKey
	refs int
	idle *list.Element // set when refs is 0
	gone bool          // the name means another file now: close at the last release
}

func newHandles(fs FS, max int) *handles {
	h := &handles{fs: fs, max: max}
	h.mu.open = map[handleKey]*handle{}
	return h
}

// acquire returns an open handle; release it.
func (h *handles) acquire(name string, create, direct bool) (*handle, error) {
	key := handleKey{name, direct}
	if f := h.lookup(key); f != nil {
		return f, nil
	}
	opened, err := h.fs.Open(name, create, direct)
	if err != nil {
		return nil, err
	}
	f := &handle{File: opened, key: key, refs: 1}
	h.mu.Lock()
	other := h.mu.open[key]
	if other == nil {
		h.mu.open[key] = f
	}
	over := h.overLocked()
	h.mu.Unlock()
	if other != nil {
		// Somebody opened it meanwhile. Ours serves this once.
		f.gone = true
	}
	return f, closeAll(over)
}

func (h *handles) lookup(key handleKey) *handle {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.mu.open[key]
	if f == nil {
		return nil
	}
	f.refs++
	if f.idle != nil {
		h.mu.idle.Remove(f.idle)
		f.idle = nil
	}
	return f
}

func (h *handles) release(f *handle) {
	h.mu.Lock()
	f.refs--
	last := f.refs == 0
	var over []*handle
	if last && f.gone {
		over = append(over, f)
	} else if last {
		f.idle = h.mu.idle.PushBack(f)
		over = h.overLocked()
	}
	h.mu.Unlock()
	_ = closeAll(over) // nothing was promised about these files that Sync did not check
}

// overLocked takes idle handles out while there are too many.
func (h *handles) overLocked() (out []*handle) {
	for len(h.mu.open) > h.max && h.mu.idle.Len() > 0 {
		f := h.mu.idle.Remove(h.mu.idle.Front()).(*handle)
		delete(h.mu.open, f.key)
		out = append(out, f)
	}
	return out
}

// forget must be called after a name was removed or renamed.
func (h *handles) forget(name string) {
	var out []*handle
	h.mu.Lock()
	for _, direct := range []bool{false, true} {
		f := h.mu.open[handleKey{name, direct}]
		if f == nil {
			continue
		}
		delete(h.mu.open, f.key)
		f.gone = true
		if f.idle != nil {
			h.mu.idle.Remove(f.idle)
			f.idle = nil
			out = append(out, f)
		}
	}
	h.mu.Unlock()
	_ = closeAll(out)
}

// close closes every handle; none may be in use.
func (h *handles) close() error {
	h.mu.Lock()
	var out []*handle
	for _, f := range h.mu.open {
		out = append(out, f)
	}
	clear(h.mu.open)
	h.mu.idle.Init()
	h.mu.Unlock()
	return closeAll(out)
}

func closeAll(fs []*handle) (err error) {
	for _, f := range fs {
		err = errors.Join(err, f.Close())
	}
	return err
}
