package replica

import (
	"fmt"
	"sync"
)

// failStop remembers the first failure of the log. A later fsync of the same file may report success although pages were
// dropped, so nothing is written after it and the process is told to stop.
type failStop struct {
	fatal func(error)
	mu    struct {
		sync.Mutex
		err error
	}
}

// check records a failure of op on the named file, once, and passes the error on.
func (s *failStop) check(err error, op, name string) error {
	if err == nil {
		return nil
	}
	err = fmt.Errorf("raft log: %s %s: %w", op, name, err)
	s.mu.Lock()
	first := s.mu.err == nil
	if first {
		s.mu.err = err
	}
	s.mu.Unlock()
	if first && s.fatal != nil {
		s.fatal(err)
	}
	return err
}

// err returns the first failure.
func (s *failStop) err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.err
}
