package fuse

import (
	"sync/atomic"

	"github.com/objcache/objcache/fuse/cache"
)

// counters only grow.
type counters struct {
	readBytes, writtenBytes, fetchedBytes, stagedBytes atomic.Uint64
	flushes, flushErrors                               atomic.Uint64
	versions, invalidations, retries, rotted           atomic.Uint64
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
}

// Status returns the state of this moment.
func (fs *FS) Status() Status {
	s := Status{Consistency: fs.cfg.Consistency, OpenFiles: fs.handles.count(), Nodes: fs.nodes.size(), Cache: fs.store.Usage()}
	s.Passthrough.On, s.Passthrough.Why = fs.pass.state()
	fs.nodes.mu.Lock()
	defer fs.nodes.mu.Unlock()
	for _, n := range fs.nodes.byID {
		s.Passthrough.Open += n.pass
	}
	return s
}
