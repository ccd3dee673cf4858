package server

import (
	"context"
	"time"

	"golang.org/x/time/rate"

	"github.com/objcache/objcache/server/chunk"
)

// scrub reads everything on the disk once per scrubInterval, at scrubRate: what rots is found while another copy still exists, not when it is needed.
func (s *Server) scrub(life context.Context) error {
	if s.cfg.ScrubInterval <= 0 {
		return nil
	}
	timer := time.NewTimer(time.Duration(s.cfg.ScrubInterval) / 24) // not in the rush of a start
	defer timer.Stop()
	for {
		select {
		case <-life.Done():
			return life.Err()
		case <-timer.C:
		}
		if err := s.scrubOnce(life); err != nil && life.Err() == nil {
			s.logger.Error("scrub ended early", "error", err)
		}
		timer.Reset(time.Duration(s.cfg.ScrubInterval))
	}
}

func (s *Server) scrubOnce(ctx context.Context) error {
	began := time.Now()
	limit := rate.NewLimiter(rate.Limit(s.cfg.ScrubRate), chunk.BlockSize)
	dirty, err := s.group.Scrub(ctx, limit.WaitN)
	s.scrubbed.Add(uint64(dirty))
	if err != nil {
		return err
	}
	clean, dropped, err := s.bytes.ScrubClean(ctx, limit.WaitN)
	s.scrubbed.Add(uint64(clean))
	if err != nil {
		return err
	}
	damaged, err := s.group.Damaged()
	if err != nil {
		return err
	}
	s.logger.Info("scrub done", "bytes", dirty+clean, "blocks_dropped", dropped, "extents_damaged", len(damaged), "took", time.Since(began))
	return nil
}
