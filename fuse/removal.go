package fuse

import "sync"

// removals wakes those who keep trying to flush a file that may be gone by now.
type removals struct {
	mu   sync.Mutex
	next chan struct{} // closed at the next removal; nil while nobody waits
}

// wait returns a channel that is closed when a name goes after this call.
func (r *removals) wait() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next == nil {
		r.next = make(chan struct{})
	}
	return r.next
}

// happened says that a name has gone.
func (r *removals) happened() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next != nil {
		close(r.next)
		r.next = nil
	}
}
