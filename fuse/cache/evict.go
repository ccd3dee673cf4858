package cache

import (
	"cmp"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Eviction frees the clean files that were used longest ago and that nobody holds, in the background, until the budget holds with a tenth to spare.

// The budget is what was configured, or less when others fill the disk.

const (
	watchEvery = time.Second // between two looks at what the disk has free
	fullRound  = 32 << 20    // bytes that a write makes room for, at least, when it finds the disk full
)

func (s *Store) kick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.shut || s.mu.bytes <= s.mu.room {
		return
	}
	select {
	case s.wake <- struct{}{}:
	default: // a round is due already
	}
}

func (s *Store) evictLoop() {
	defer close(s.done)
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case _, more := <-s.wake:
			if !more {
				return
			}
		case <-tick.C:
			if !s.look() {
				continue
			}
		}
		s.evict(func() bool { return s.mu.bytes > s.mu.room-s.mu.room/10 })
	}
}

// look asks the disk what it has free and reports whether the budget is exceeded.
func (s *Store) look() bool {
	var st unix.Statfs_t
	if err := unix.Statfs(s.cfg.Dir, &st); err != nil {
		s.cfg.Logger.Error("the disk of the cache does not say what it has free", "dir", s.cfg.Dir, "err", err)
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.room = min(s.cfg.Bytes, (s.mu.bytes+int64(st.Bavail)*st.Bsize)/20*19)
	return s.mu.bytes > s.mu.room
}

// roomFor runs a write to the disk again, once, if the disk was full and files could be evicted.
func (s *Store) roomFor(write func() error) error {
	err := write()
	if !isErrno(err, unix.ENOSPC) && !isErrno(err, unix.EDQUOT) {
		return err
	}
	s.mu.Lock()
	before := s.mu.bytes
	want := before - max(before/10, fullRound)
	s.mu.Unlock()
	s.evict(func() bool { return s.mu.bytes > want })
	return write()
}

// evict frees idle clean files as long as more, called with the lock held, says so.
func (s *Store) evict(more func() bool) {
	for _, c := range s.idle() {
		dirty := c.f.Pending().Due() // nobody writes to a file without holding it
		s.mu.Lock()
		if s.mu.shut || !more() {
			s.mu.Unlock()
			return
		}
		if dirty || c.f.refs > 0 || c.f.used != c.used || c.f.unlinked {
			s.mu.Unlock()
			continue
		}
		s.dropLocked(c.f)
		s.evicted++
		s.mu.Unlock()
		c.f.discard(true)
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
