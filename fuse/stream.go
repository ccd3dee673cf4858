package fuse

import (
	"github.com/objcache/objcache"

	"github.com/objcache/objcache/failpoint"
)

const (
	stageUnit      = 4 << 20 // bytes a sequential writer must have passed before they are staged
	stagesInFlight = 4       // for the whole mount
)

// stream is where a sequential writer is. What it has passed is given to the owners while it goes on.
type stream struct {
	begin, end int64 // written in sequence; everything before begin has been offered for staging
}

// advance notes a write of r and returns the whole units that the writer has left behind.
func (s *stream) advance(r objcache.Range) (passed objcache.Range) {
	if r.Off != s.end {
		s.begin = (r.Off + stageUnit - 1) / stageUnit * stageUnit
		s.end = r.End()
		return objcache.Range{}
	}
	s.end = r.End()
	if whole := s.end / stageUnit * stageUnit; whole > s.begin {
		passed = objcache.Range{Off: s.begin, Len: whole - s.begin}
		s.begin = whole
	}
	return passed
}

// advance starts staging what a sequential writer has passed. A unit for which no slot is free waits for the flush: the writer is never held up.
func (f *content) advance(r objcache.Range) {
	if f.fs.cfg.Consistency == Strict {
		return
	}
	f.mu.Lock()
	passed := f.mu.stream.advance(r)
	f.mu.Unlock()
	for off := passed.Off; off < passed.End(); off += stageUnit {
		select {
		case f.fs.stages <- struct{}{}:
		default:
			return
		}
		f.fs.contents.hold(f)
		f.fs.background(func() {
			defer f.fs.contents.release(f)
			defer func() { <-f.fs.stages }()
			f.stage(objcache.Range{Off: off, Len: stageUnit})
		})
	}
}

// stage gives the dirty bytes of r to the owners. An error is no matter: the bytes stay dirty and the flush sends them, and reports.
func (f *content) stage(r objcache.Range) {
	unlock, err := f.ranges.lock(f.fs.ctx, r)
	if err != nil {
		return
	}
	defer unlock()
	c := f.hold()
	defer f.fs.store.Release(c)
	for _, d := range c.Pending().Dirty.Within(r) {
		if err := f.fs.backend.Stage(f.fs.ctx, f.ino, d, c.Raw()); err != nil {
			f.fs.log.Debug("staging ahead failed", "ino", f.ino, "off", d.Off, "err", err)
			return
		}
		f.fs.count.stagedBytes.Add(uint64(d.Len))
		failpoint.Hit(failpoint.MountStageAfter)
		c.Staged(d)
	}
}
