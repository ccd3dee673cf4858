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
		for !s.budget.relaxed() && ctx.Err() == nil {
			v := s.budget.victim()
			if v == nil {
				break
			}
			v.store.evict(v.file)
		}
	}
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
	dirty, clean := b.Used()
	return dirty+clean <= b.low
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
func (s *Store) evict(f *file) {
	s.mu.Lock()
	ok := !f.held() && s.dropCleanLocked(f)
	s.mu.Unlock()
	if ok {
		s.remove(f)
	}
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
