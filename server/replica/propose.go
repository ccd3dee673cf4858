package replica

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/raft"
	"github.com/objcache/objcache"
)

// Propose appends data, waits until it is committed and applied, and returns what Apply returned. Larger than MaxEntry is Invalid. Every other failure is
// Unavailable and leaves the outcome unknown: the entry may still be applied, also after a restart. data must not change until it is applied.
func (r *Replica) Propose(ctx context.Context, data []byte) (any, error) {
	if len(data) > MaxEntry {
		return nil, objcache.Errorf(objcache.Invalid, "raft entry of %d bytes", len(data))
	}
	if err := ctx.Err(); err != nil {
		return nil, objcache.Errorf(objcache.Unavailable, "proposing to group %d: %w", r.cfg.Group, err)
	}
	var result any
	err := r.await(ctx, func() error {
		f := r.raft.Apply(data, enqueueTimeout(ctx))
		err := f.Error()
		if err == nil {
			result = f.Response()
		}
		return err
	})
	if err != nil {
		return nil, objcache.Errorf(objcache.Unavailable, "proposing to group %d: %w", r.cfg.Group, err)
	}
	return result, nil
}

// enqueueTimeout bounds the wait for a place in raft's queue; 0 means no bound.
func enqueueTimeout(ctx context.Context) time.Duration {
	if end, ok := ctx.Deadline(); ok {
		return max(time.Until(end), time.Nanosecond)
	}
	return 0
}

// await runs a request of raft and gives up on it, but not it up, when ctx ends.
func (r *Replica) await(ctx context.Context, request func() error) error {
	r.mu.Lock()
	if r.mu.closing {
		r.mu.Unlock()
		return raft.ErrRaftShutdown
	}
	r.requests.Add(1)
	r.mu.Unlock()
	if ctx.Done() == nil {
		defer r.requests.Done()
		return request()
	}
	done := make(chan error, 1)
	go func() {
		defer r.requests.Done()
		done <- request()
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Term is the term in which this replica is leader, 0 when it is not. It may be over by the time the caller looks: what is decided under it
// must carry it into the log.
func (r *Replica) Term() uint64 {
	for {
		term := r.raft.CurrentTerm()
		if r.raft.State() != raft.Leader {
			return 0
		}
		// The term never changes while a replica leads, so it led in term at the moment of State.
		if r.raft.CurrentTerm() == term {
			return term
		}
	}
}

// WaitLeader waits until this replica leads and everything committed before its term is applied here.
func (r *Replica) WaitLeader(ctx context.Context) error {
	for {
		changed := r.leaderChange()
		if term := r.Term(); term != 0 {
			err := r.ensureBarrier(ctx, term)
			if err == nil && r.Term() == term {
				return nil
			}
			if errors.Is(err, raft.ErrRaftShutdown) || ctx.Err() != nil {
				return objcache.Errorf(objcache.Unavailable, "waiting to lead group %d: %w", r.cfg.Group, err)
			}
		}
		select {
		case <-changed:
		case <-r.done:
			return objcache.Errorf(objcache.Unavailable, "replica of group %d is closed", r.cfg.Group)
		case <-ctx.Done():
			return objcache.Errorf(objcache.Unavailable, "waiting to lead group %d: %w", r.cfg.Group, ctx.Err())
		}
	}
}

// Read is a linearizable read point: what was acknowledged anywhere before the call is applied here on return. Not being the leader is Unavailable.
func (r *Replica) Read(ctx context.Context) error {
	term := r.Term()
	if term == 0 {
		return objcache.Errorf(objcache.Unavailable, "not the leader of group %d", r.cfg.Group)
	}
	err := r.ensureBarrier(ctx, term)
	if err == nil {
		err = r.await(ctx, func() error { return r.raft.VerifyLeader().Error() })
	}
	if err != nil {
		return objcache.Errorf(objcache.Unavailable, "reading from group %d: %w", r.cfg.Group, err)
	}
	// Another term in between would need its own Barrier.
	if r.Term() != term {
		return objcache.Errorf(objcache.Unavailable, "group %d changed its leader", r.cfg.Group)
	}
	return nil
}

// ensureBarrier applies everything that was committed before term, once per term.
func (r *Replica) ensureBarrier(ctx context.Context, term uint64) error {
	if r.barrier.Load() == term {
		return nil
	}
	if err := r.await(ctx, func() error { return r.raft.Barrier(enqueueTimeout(ctx)).Error() }); err != nil {
		return err
	}
	// The Barrier may have belonged to a later term; then it counts for nobody.
	if r.Term() == term {
		r.barrier.Store(term)
	}
	return nil
}

// watch wakes WaitLeader at every change. Raft's main goroutine waits for it, so it must never wait itself.
func (r *Replica) watch() {
	for {
		select {
		case <-r.done:
			return
		case <-r.notify:
			r.mu.Lock()
			close(r.mu.changed)
			r.mu.changed = make(chan struct{})
			r.mu.Unlock()
		}
	}
}

func (r *Replica) leaderChange() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.changed
}
