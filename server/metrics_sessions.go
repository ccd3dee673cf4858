package server

import (
	"github.com/prometheus/client_golang/prometheus"
)

// measureSessions shows how many sessions and file locks there are.
func (s *Server) measureSessions() {
	gauge := func(name, help string, value func() float64) {
		s.metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "objcache_group_" + name, Help: help}, value))
	}
	locks := func() (held, waiting uint64) {
		held, waiting, err := s.group.FileLockCounts()
		if err != nil {
			s.logger.Error("file locks not counted", "error", err)
		}
		return held, waiting
	}
	gauge("sessions", "Sessions whose row is kept here.", func() float64 { return float64(s.group.SessionCount()) })
	gauge("file_locks", "File locks held by programs of mounts.", func() float64 { held, _ := locks(); return float64(held) })
	gauge("file_lock_waiters", "Programs that wait for a file lock.", func() float64 { _, waiting := locks(); return float64(waiting) })
}
