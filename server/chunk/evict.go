package chunk

import (
	"container/list"
	"context"
)

// Eviction is CLOCK over the clean files of all stores: the hand passes over a file that was read since its last visit, and takes the others. It runs in
// the stores' background goroutines, whichever is awake; an evicted file stays readable for those who have it open.

// evictLoop evicts whenever the budget asks for it. Any store's loop evicts any store's files.
func (s *Store) evictLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			s.budget.wakeEvictor() // the request may have been meant for another store
			return
		case <-s.budget.wake:
		}
		if s.budget.tight() {
			s.dropSpares()
		}
		s.makeRoom(ctx)
	}
}

// makeRoom evicts until there is room enough, or nothing more can go. What metadata may still name goes once the metadata has been settled.
func (s *Store) makeRoom(ctx context.Context) {
	settled := false
	held := map[*Store]bool{s: true} // who may have freed what only waits for its metadata
	for failed := 0; !s.budget.relaxed() && ctx.Err() == nil; {
		v := s.budget.victim()
		switch {
		case v != nil && v.store.evict(v.file):
			failed = 0
			continue
		case v != nil && failed < s.budget.files():
			failed++
			held[v.store] = true
			continue
		case settled:
			return
		}
		for h := range held {
			h.settle()
		}
		settled, failed = true, 0
	}
}

// settle has metadata made durable, if something waits for that to be removed.
func (s *Store) settle() {
	s.mu.Lock()
	waiting := len(s.mu.freed) > 0
	s.mu.Unlock()
	s.short.RLock()
	defer s.short.RUnlock()
	if !waiting || s.short.f == nil {
		return
	}
	if err := s.short.f(); err != nil {
		s.log.Error("metadata could not be settled to make room", "dir", s.dir, "error", err)
	}
}

// OnShort sets what is called in the background when room is needed and only freed places whose index is not Durable could give it; it should make the
// metadata durable and say so. nil: nothing is called any more, nor is a call under way, on return.
func (s *Store) OnShort(f func() error) {
	s.short.Lock()
	defer s.short.Unlock()
	s.short.f = f
}

// dropSpares lets the idle segments of this store go.
func (s *Store) dropSpares() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.mu.spares {
		s.deadLocked(f)
	}
	s.mu.spares = nil
}

// relaxed reports whether eviction may stop.
func (b *Budget) relaxed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.dirty+b.mu.clean <= b.mu.low
}

// enter puts a clean file on the clock, behind the hand.
func (b *Budget) enter(s *Store, f *file) {
	b.mu.Lock()
	defer b.mu.Unlock()
	ref := &cleanRef{s, f}
	if b.mu.hand == nil {
		f.clean.ref = b.mu.clock.PushBack(ref)
		b.mu.hand = f.clean.ref
		return
	}
	f.clean.ref = b.mu.clock.InsertBefore(ref, b.mu.hand)
}

// leave takes a clean file off the clock.
func (b *Budget) leave(f *file) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if f.clean.ref == nil {
		return
	}
	if b.mu.hand == f.clean.ref {
		b.mu.hand = b.nextLocked(b.mu.hand)
		if b.mu.hand == f.clean.ref {
			b.mu.hand = nil
		}
	}
	b.mu.clock.Remove(f.clean.ref)
	f.clean.ref = nil
}

func (b *Budget) nextLocked(e *list.Element) *list.Element {
	if n := e.Next(); n != nil {
		return n
	}
	return b.mu.clock.Front()
}

// victim moves the hand to the next file that was not used, at most twice around; nil when there is none to take.
func (b *Budget) victim() *cleanRef {
	b.mu.Lock()
	defer b.mu.Unlock()
	for range 2*b.mu.clock.Len() + 1 {
		if b.mu.hand == nil {
			return nil
		}
		ref := b.mu.hand.Value.(*cleanRef)
		b.mu.hand = b.nextLocked(b.mu.hand)
		if !ref.file.pinned.Load() && !ref.file.used.Swap(false) {
			return ref
		}
	}
	return nil
}

// evict drops a clean file unless metadata may still name its bytes.
func (s *Store) evict(f *file) bool {
	s.mu.Lock()
	ok := !f.held() && s.dropCleanLocked(f)
	s.mu.Unlock()
	if ok {
		s.remove(f)
	}
	return ok
}

// files is the number of clean files.
func (b *Budget) files() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.clock.Len()
}

// leaveBudget gives back everything at Close.
func (s *Store) leaveBudget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	var dirty, clean int64
	for _, f := range s.mu.files {
		switch {
		case f.clean != nil:
			s.budget.leave(f)
			clean += f.clean.taken
		case !s.mu.started:
		case f.kind == segmentKind:
			dirty += f.size
		default:
			dirty += f.alloc.count() * BlockSize
		}
	}
	s.budget.give(dirty, clean)
}
