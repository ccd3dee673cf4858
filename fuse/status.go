package fuse

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/objcache/objcache/fuse/cache"
)

// counters only grow.
type counters struct {
	readBytes, writtenBytes, fetchedBytes, stagedBytes atomic.Uint64
	flushes, flushErrors                               atomic.Uint64
	versions, invalidations, retries, rotted           atomic.Uint64
	sessionsLost                                       atomic.Uint64
}

// Status is what `objcache status` shows of a mount.
type Status struct {
	Consistency Consistency `json:"consistency"`
	Passthrough struct {
		On  bool   `json:"on"`
		Why string `json:"why"`
		// Open is the number of descriptors whose reads the kernel answers from the backing file.
		Open int `json:"open"`
	} `json:"passthrough"`
	OpenFiles int         `json:"openFiles"`
	Nodes     int         `json:"nodes"` // inodes the kernel knows
	Cache     cache.Usage `json:"cache"`

	Locks        int    `json:"locks"`        // of programs of this mount
	LockWaiters  int    `json:"lockWaiters"`  // programs that wait for one
	SessionsLost uint64 `json:"sessionsLost"` // the servers had not heard of this mount for too long
	// SetAside are the last conflict files this mount has made.
	SetAside []string `json:"setAside,omitempty"`
}

// asides remembers the names of the last files set aside.
type asides struct {
	mu    sync.Mutex
	names []string
}

func (a *asides) add(name string) {
	const keep = 16
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.names = append(a.names, name); len(a.names) > keep {
		a.names = slices.Delete(a.names, 0, 1)
	}
}

func (a *asides) all() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.names)
}

// Status returns the state of this moment.
func (fs *FS) Status() Status {
	s := Status{Consistency: fs.cfg.Consistency, OpenFiles: fs.handles.count(), Nodes: fs.nodes.size(), Cache: fs.store.Usage()}
	s.Locks, s.LockWaiters = fs.locks.counts()
	s.SessionsLost, s.SetAside = fs.count.sessionsLost.Load(), fs.aside.all()
	s.Passthrough.On, s.Passthrough.Why = fs.pass.state()
	fs.nodes.mu.Lock()
	defer fs.nodes.mu.Unlock()
	for _, n := range fs.nodes.byID {
		s.Passthrough.Open += n.pass
	}
	return s
}
