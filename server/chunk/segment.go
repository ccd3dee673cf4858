package chunk

import (
	"context"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/failpoint"
)

// reserveAppend takes the next n bytes of the second-level log, in whole pages.
func (s *Store) reserveAppend(ctx context.Context, n int64) (*file, int64, error) {
	for {
		f, at, err := s.tryAppend(n)
		if f != nil || err != nil {
			return f, at, err
		}
		if err := s.nextSegment(ctx, n); err != nil {
			return nil, 0, err
		}
	}
}

// tryAppend returns nil when the active segment has no room.
func (s *Store) tryAppend(n int64) (*file, int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.mu.started {
		return nil, 0, objcache.Errorf(objcache.Unavailable, "chunk store %s has not started", s.dir)
	}
	f, room := s.mu.active, alignUp(n, pageSize)
	if f == nil || f.tail+room > f.size {
		return nil, 0, nil
	}
	at := f.tail
	f.tail += room
	f.pending++
	s.addLiveLocked(f, at, n)
	return f, at, nil
}

// nextSegment makes a segment with room for n bytes the active one: a spare, whose blocks are already allocated, or a new one.
func (s *Store) nextSegment(ctx context.Context, n int64) error {
	select {
	case s.grow <- struct{}{}:
		defer func() { <-s.grow }()
	case <-ctx.Done():
		return objcache.Errorf(objcache.KindOf(ctx.Err()), "waiting for a segment in %s: %w", s.dir, ctx.Err())
	}
	n = alignUp(n, pageSize)
	s.mu.Lock()
	if f := s.mu.active; f != nil && f.tail+n <= f.size { // somebody was faster
		s.mu.Unlock()
		return nil
	}
	if last := len(s.mu.spares) - 1; last >= 0 && s.mu.spares[last].size >= n {
		f := s.mu.spares[last]
		s.mu.spares = s.mu.spares[:last]
		s.activateLocked(f)
		s.mu.Unlock()
		s.sync.addName() // a spare got its name when it was recycled
		failpoint.Hit(failpoint.ChunkSpareTaken)
		return nil
	}
	s.mu.Unlock()
	f, err := s.makeSegment(ctx, max(s.opt.SegmentSize, n))
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.files[f.id] = f
	s.mu.usage.Segments += f.size
	s.activateLocked(f)
	return nil
}

// activateLocked appends to f from now on; a full segment whose bytes are all dead already has waited for this.
func (s *Store) activateLocked(f *file) {
	old := s.mu.active
	s.mu.active = f
	if old != nil && !old.held() {
		s.deadLocked(old)
	}
}

func (s *Store) makeSegment(ctx context.Context, size int64) (*file, error) {
	if err := s.budget.takeDirty(ctx, size); err != nil {
		return nil, err
	}
	id, err := s.newID()
	if err != nil {
		s.budget.giveDirty(size)
		return nil, err
	}
	f := &file{id: id, kind: segmentKind, size: size, live: map[int64]int64{}}
	name := f.name(s.dir)
	h, err := s.handles.acquire(name, true, s.direct)
	if err == nil {
		err = h.Allocate(0, size)
		s.handles.release(h)
	}
	if err != nil {
		s.budget.giveDirty(size)
		s.handles.forget(name)
		_ = s.fs.Remove(name) // what cannot be removed now is removed at the next start
		return nil, diskError(err, "allocate", name)
	}
	failpoint.Hit(failpoint.ChunkSegmentMade)
	s.sync.addName()
	return f, nil
}
