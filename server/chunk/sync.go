package chunk

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/failpoint"
	"golang.org/x/sync/errgroup"
)

// syncState collects what a round of Sync has to make durable, and who waits for it.
type syncState struct {
	wake chan struct{} // capacity 1
	done atomic.Uint64 // fdatasyncs
	mu   struct {
		sync.Mutex
		files map[*file]struct{} // written since the last round began
		names bool               // a file was made or renamed since then
		next  *round
	}
}

// round is one group commit. err is set before done is closed.
type round struct {
	done    chan struct{}
	err     error
	waiting bool
}

func newRound() *round { return &round{done: make(chan struct{})} }

func (y *syncState) init() {
	y.wake = make(chan struct{}, 1)
	y.mu.files = map[*file]struct{}{}
	y.mu.next = newRound()
}

// add puts a file into the next round.
func (y *syncState) add(f *file) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.mu.files[f] = struct{}{}
	if !f.named {
		f.named, y.mu.names = true, true
	}
}

// addName puts the directory into the next round.
func (y *syncState) addName() {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.mu.names = true
}

// join returns the round that covers everything written by now.
func (y *syncState) join() *round {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.mu.next.waiting = true
	select {
	case y.wake <- struct{}{}:
	default:
	}
	return y.mu.next
}

// begin closes the next round to newcomers and returns its work; nil when nobody waits.
func (y *syncState) begin() (r *round, files []*file, names bool) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if !y.mu.next.waiting {
		return nil, nil, false
	}
	r, names = y.mu.next, y.mu.names
	for f := range y.mu.files {
		files = append(files, f)
	}
	clear(y.mu.files)
	y.mu.next, y.mu.names = newRound(), false
	return r, files, names
}

// Sync returns when every Write that returned before the call is on disk; one round of fdatasync covers everybody who waits. After a failed round
// nothing is acknowledged any more, because a later fdatasync could succeed without the bytes: IO from then on. The end of ctx ends the wait only.
func (s *Store) Sync(ctx context.Context) error {
	r := s.sync.join()
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return objcache.Errorf(objcache.KindOf(ctx.Err()), "sync of %s: %w", s.dir, ctx.Err())
	}
}

func (s *Store) syncLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			// Whoever still waits learns that nothing is known.
			if r, _, _ := s.sync.begin(); r != nil {
				r.err = objcache.Errorf(objcache.Unavailable, "chunk store %s is closed", s.dir)
				close(r.done)
			}
			return
		case <-s.sync.wake:
		}
		r, files, names := s.sync.begin()
		if r == nil {
			continue
		}
		r.err = s.syncRound(files, names)
		close(r.done)
	}
}

func (s *Store) syncRound(files []*file, names bool) error {
	if err := s.broken(); err != nil {
		return err
	}
	slices.SortFunc(files, func(a, b *file) int { return int(a.id) - int(b.id) })
	var g errgroup.Group
	g.SetLimit(8)
	for _, f := range files {
		g.Go(func() error { return s.syncFile(f) })
	}
	err := g.Wait()
	if err == nil && names {
		failpoint.Hit(failpoint.ChunkNamesBefore)
		if err = s.fs.SyncDir(s.dir); err != nil {
			err = objcache.Errorf(objcache.IO, "sync %s: %w", s.dir, err)
		}
		failpoint.Hit(failpoint.ChunkNamesAfter)
	}
	if err != nil {
		s.fatal.CompareAndSwap(nil, &err)
		s.log.Error("chunk store stops acknowledging writes", "dir", s.dir, "err", err)
	}
	return err
}

func (s *Store) syncFile(f *file) error {
	h, err := s.open(f, s.direct)
	if h == nil && err == nil {
		return nil // all its bytes are dead
	}
	if err == nil {
		s.sync.done.Add(1)
		failpoint.Hit(failpoint.ChunkSyncBefore)
		err = h.Sync()
		failpoint.Hit(failpoint.ChunkSyncAfter)
		s.handles.release(h)
	}
	if err != nil {
		return objcache.Errorf(objcache.IO, "sync %s: %w", fileName(f.id, f.kind), err)
	}
	return nil
}

// Syncs is how many fdatasyncs of files were made since Open.
func (s *Store) Syncs() uint64 { return s.sync.done.Load() }
