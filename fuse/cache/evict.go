package cache

// Eviction frees the clean file that was used longest ago and that nobody holds, in the background, until the budget holds with a tenth to spare.

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
		for s.evictOne() {
		}
	}
}

// evictOne reports whether it freed a file.
func (s *Store) evictOne() bool {
	s.mu.Lock()
	if s.mu.shut || s.mu.bytes <= s.cfg.Bytes-s.cfg.Bytes/10 {
		s.mu.Unlock()
		return false
	}
	var victim *File
	for _, f := range s.mu.files {
		if f.refs == 0 && (victim == nil || f.used < victim.used) && !f.Pending().Due() {
			victim = f
		}
	}
	if victim == nil {
		s.mu.Unlock()
		return false
	}
	s.unlinkLocked(victim)
	s.evicted++
	s.mu.Unlock()
	victim.discard(true)
	return true
}
