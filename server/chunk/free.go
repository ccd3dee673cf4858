package chunk

import (
	"context"
	"slices"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/failpoint"
)

// freed is a free that waits for its metadata.
type freed struct {
	index uint64
	file  *file
	off   int64
}

// Retain says that metadata names a place. It is called for every live place between Open and Started, also twice.
func (s *Store) Retain(key objcache.ChunkKey, pl Place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.mu.files[pl.File]
	if f == nil || !pl.valid() {
		s.log.Error("a local file that metadata names is missing", "dir", s.dir, "file", pl.File, "chunk", key)
		return
	}
	if f.kind == segmentKind {
		f.tail = max(f.tail, alignUp(pl.Off+pl.Len, pageSize))
	} else {
		f.key = key
		for b := pl.Start / BlockSize; b*BlockSize < pl.Start+pl.Len; b++ {
			f.alloc.set(b)
		}
	}
	s.addLiveLocked(f, pl.Off, pl.Len)
}

// Started ends the start: what nobody retained is deleted in the background, and writes begin. The bytes found on disk count against the budget
// even if they exceed it.
func (s *Store) Started() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.started {
		return objcache.Errorf(objcache.Invalid, "chunk store %s has started before", s.dir)
	}
	s.mu.started = true
	for _, f := range s.mu.files {
		switch {
		case f.kind == segmentKind:
			s.mu.usage.Segments += f.size
			s.budget.forceDirty(f.size)
			if f.held() && f.size-f.tail >= BlockSize && (s.mu.active == nil || f.size-f.tail > s.mu.active.size-s.mu.active.tail) {
				s.mu.active = f
			}
		case f.clean != nil:
			s.budget.enter(s, f)
		default:
			s.budget.forceDirty(f.alloc.count() * BlockSize)
			if other := s.mu.dirty[f.key]; f.held() && (other == nil || other.id < f.id) {
				s.mu.dirty[f.key] = f
			}
		}
	}
	for _, f := range s.mu.files {
		if !f.held() {
			s.deadLocked(f)
		}
	}
	return nil
}

// Free says that a place is dead as of log entry index. Its bytes can be read until that index is Durable and are reused some time after. Places that are
// not live are ignored, so that replayed entries do no harm.
func (s *Store) Free(_ objcache.ChunkKey, pl Place, index uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.mu.files[pl.File]
	if f == nil {
		return
	}
	if _, ok := f.live[pl.Off]; !ok {
		return
	}
	if index <= s.mu.durable {
		s.dropLiveLocked(f, pl.Off)
		return
	}
	s.mu.freed = append(s.mu.freed, freed{index, f, pl.Off})
	s.budget.nudge()
}

// Durable says that metadata as of log entry upTo survives a crash: what was freed by then may be unlinked and recycled.
func (s *Store) Durable(upTo uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.durable = max(s.mu.durable, upTo)
	s.mu.freed = slices.DeleteFunc(s.mu.freed, func(d freed) bool {
		if d.index > s.mu.durable {
			return false
		}
		s.dropLiveLocked(d.file, d.off)
		return true
	})
}

// reclaimLoop removes and recycles dead files.
func (s *Store) reclaimLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.tidy:
		}
		s.mu.Lock()
		dead := s.mu.dead
		s.mu.dead = nil
		s.mu.Unlock()
		for _, f := range dead {
			if f.kind != segmentKind || !s.recycle(f) {
				s.remove(f)
			}
		}
	}
}

// recycle gives a segment without live bytes a new number; its blocks are overwritten in place. It reports false when it is not wanted.
func (s *Store) recycle(f *file) bool {
	s.mu.Lock()
	wanted := len(s.mu.spares) < s.opt.Spares && f.size == s.opt.SegmentSize
	s.mu.Unlock()
	if !wanted || s.budget.tight() {
		return false
	}
	id, err := s.newID()
	if err != nil {
		s.log.Warn("no number for a recycled segment", "dir", s.dir, "err", err)
		return false
	}
	fresh := &file{id: id, kind: segmentKind, size: f.size, live: map[int64]int64{}}
	from := f.name(s.dir)
	failpoint.Hit(failpoint.ChunkRecycleBefore)
	if err := s.fs.Rename(from, fresh.name(s.dir)); err != nil {
		s.log.Warn("a segment could not be recycled", "file", from, "err", err)
		return false
	}
	failpoint.Hit(failpoint.ChunkRecycleAfter)
	s.handles.forget(from)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.files, f.id)
	s.mu.files[fresh.id] = fresh
	s.mu.spares = append(s.mu.spares, fresh)
	return true
}

// remove unlinks a file and gives its bytes back.
func (s *Store) remove(f *file) {
	name := f.name(s.dir)
	s.handles.forget(name)
	failpoint.Hit(failpoint.ChunkUnlinkBefore)
	if err := s.fs.Remove(name); err != nil {
		s.log.Warn("a local file could not be removed", "file", name, "err", err)
	}
	failpoint.Hit(failpoint.ChunkUnlinkAfter)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.files, f.id)
	switch {
	case f.kind == segmentKind:
		s.mu.usage.Segments -= f.size
		s.budget.giveDirty(f.size)
	case f.clean != nil:
		s.mu.usage.Clean -= f.clean.taken
		s.budget.giveClean(f.clean.taken)
	default:
		s.budget.giveDirty(f.alloc.count() * BlockSize)
	}
}
