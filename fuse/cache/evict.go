package cache

import (
	"cmp"
	"slices"
)

// Eviction frees the clean files that were used longest ago and that nobody holds, in the background, until the budget holds with a tenth to spare.

func (s *Store) kick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.shut || s.mu.bytes <= s.cfg.Bytes {
		return
	}
	select {
	case s.wake <- struct{}{}:
	default: // a round is due already
	}
}

func (s *Store) evictLoop() {
	defer close(s.done)
	for range s.wake {
		for _, f := range s.idle() {
			if !s.evict(f) {
				break
			}
		}
	}
}

type candidate struct {
	f    *File
	used uint64
}

// idle lists the files that nobody holds, those first that were used longest ago.
func (s *Store) idle() []candidate {
	s.mu.Lock()
	out := make([]candidate, 0, len(s.mu.files))
	for _, f := range s.mu.files {
		if f.refs == 0 {
			out = append(out, candidate{f, f.used})
		}
	}
	s.mu.Unlock()
	slices.SortFunc(out, func(a, b candidate) int { return cmp.Compare(a.used, b.used) })
	return out
}

// evict frees a file if it is idle still and clean; false: there is room enough.
func (s *Store) evict(c candidate) bool {
	dirty := c.f.Pending().Due() // nobody writes to a file without holding it
	s.mu.Lock()
	if s.mu.shut || s.mu.bytes <= s.cfg.Bytes-s.cfg.Bytes/10 {
		s.mu.Unlock()
		return false
	}
	if dirty || c.f.refs > 0 || c.f.used != c.used || c.f.unlinked {
		s.mu.Unlock()
		return true
	}
	s.dropLocked(c.f)
	s.evicted++
	s.mu.Unlock()
	c.f.discard(true)
	return true
}
