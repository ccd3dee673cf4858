package server

import (
	"context"
	"time"
)

// watchEvery is how often the disk is asked what it has left.
const watchEvery = 500 * time.Millisecond

// watchDisk keeps the budget of chunks within what the disk has: mounts, other servers and other programs fill it, too.
func (s *Server) watchDisk(life context.Context) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		if free, err := s.state.free(); err != nil {
			s.logger.Error("the disk does not say what it has free", "error", err)
		} else {
			s.budget.Disk(free)
		}
		select {
		case <-life.Done():
			return life.Err()
		case <-tick.C:
		}
	}
}
