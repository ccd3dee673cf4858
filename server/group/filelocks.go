package group

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/filelock"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
	"github.com/objcache/objcache/server/txn"
)

// fileLocks is the leader's copy of the rows with file locks, and who waits. Rows change first.
type fileLocks struct {
	mu struct {
		sync.Mutex
		held    map[objcache.Ino]meta.FileLocks
		waiting map[objcache.Ino][]*waiter // first come first
		count   uint64                     // of locks
	}
}

func (f *fileLocks) init() {
	f.mu.held = map[objcache.Ino]meta.FileLocks{}
	f.mu.waiting = map[objcache.Ino][]*waiter{}
}

// restore learns of the locks in rows at a start.
func (f *fileLocks) restore(r meta.Reader) error {
	lo, hi := meta.FileLocksBounds()
	return meta.Scan(r, lo, hi, func(k, v []byte) (bool, error) {
		if ino, ok := meta.ParseFileLocksKey(k); ok {
			all, err := meta.DecodeFileLocks(v)
			if err != nil {
				return false, objcache.Errorf(objcache.Corrupt, "locks of inode %d: %w", ino, err)
			}
			f.note(ino, all)
		}
		return true, nil
	})
}

// note keeps what the rows now say of a file, and wakes whom that helps.
func (f *fileLocks) note(ino objcache.Ino, now meta.FileLocks) {
	f.mu.Lock()
	defer f.mu.Unlock()
	old := f.mu.held[ino]
	f.mu.count += uint64(len(now.Posix)+len(now.Flock)) - uint64(len(old.Posix)+len(old.Flock))
	f.mu.held[ino] = now
	if now.Empty() {
		delete(f.mu.held, ino)
	}
	f.wakeLocked(ino)
}

// FileLocked reports whether somebody has a lock on a file.
func (g *Group) FileLocked(ino objcache.Ino) bool {
	g.fileLocks.mu.Lock()
	defer g.fileLocks.mu.Unlock()
	_, ok := g.fileLocks.mu.held[ino]
	return ok
}

// FileLockCounts returns how many locks the group holds for clients, and how many wait for one.
func (g *Group) FileLockCounts() (held, waiting uint64) {
	f := &g.fileLocks
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, ws := range f.mu.waiting {
		waiting += uint64(len(ws))
	}
	return f.mu.count, waiting
}

// Lock carries out a request about file locks of an inode of this group. Of its kinds only AWAIT takes time, and holds nothing meanwhile.
func (g *Group) Lock(ctx context.Context, h *rpc.Header, r *rpc.LockRequest, attr func(meta.Reader) (*rpc.Attr, error)) (*rpc.Reply, error) {
	l := meta.LockOf(r.GetLock())
	l.Owner.Session = h.GetClient()
	switch r.GetVerb() {
	case rpc.LockRequest_TRY:
		return g.tryLock(ctx, h, r, l, attr)
	case rpc.LockRequest_UNLOCK:
		g.fileLocks.leave(objcache.Ino(r.GetIno()), l.Owner.Session, r.GetTicket())
		return g.setLock(ctx, h, r, l, true, nil)
	case rpc.LockRequest_TEST:
		return g.testLock(r, l), nil
	case rpc.LockRequest_AWAIT:
		err := g.fileLocks.await(ctx, objcache.Ino(r.GetIno()), l.Owner.Session, r.GetTicket())
		return lockReply(nil, nil), err
	case rpc.LockRequest_LEAVE:
		g.fileLocks.leave(objcache.Ino(r.GetIno()), l.Owner.Session, r.GetTicket())
		return lockReply(nil, nil), nil
	}
	return nil, objcache.Errorf(objcache.NotSupported, "lock request %v", r.GetVerb())
}

func lockReply(a *rpc.Attr, by *rpc.FileLock) *rpc.Reply {
	return &rpc.Reply{Result: &rpc.Reply_Lock{Lock: &rpc.LockReply{Attr: a, By: by}}}
}

func wireLock(l filelock.Lock) *rpc.FileLock {
	return &rpc.FileLock{Client: l.Owner.Session, Owner: l.Owner.ID, Exclusive: l.Exclusive, Start: l.Start, End: l.End, Pid: l.PID}
}

// tryLock takes a lock if nobody is in the way, nor, for one that waits, before it in the queue.
func (g *Group) tryLock(
	ctx context.Context, h *rpc.Header, r *rpc.LockRequest, l filelock.Lock, attr func(meta.Reader) (*rpc.Attr, error),
) (*rpc.Reply, error) {
	ino := objcache.Ino(r.GetIno())
	if err := g.fileLocks.enter(ino, r.GetFlock(), l, r.GetTicket()); err != nil {
		return nil, err
	}
	reply, err := g.setLock(ctx, h, r, l, false, func(rd meta.Reader) (*rpc.Reply, error) {
		a, err := attr(rd)
		return lockReply(a, nil), err
	})
	if err == nil {
		g.fileLocks.leave(ino, l.Owner.Session, r.GetTicket())
	}
	return reply, err
}

func (g *Group) setLock(
	ctx context.Context, h *rpc.Header, r *rpc.LockRequest, l filelock.Lock, unlock bool, reply func(meta.Reader) (*rpc.Reply, error),
) (*rpc.Reply, error) {
	step := &rpc.Step{Step: &rpc.Step_SetLock{SetLock: &rpc.SetLock{Ino: r.GetIno(), Flock: r.GetFlock(), Unlock: unlock, Lock: wireLock(l)}}}
	return g.Transact(ctx, Tx{Header: h, Steps: []*rpc.Step{step}, Reply: reply, Then: func() { g.noteFileLocks(objcache.Ino(r.GetIno())) }})
}

// noteFileLocks makes the copy follow the rows; the caller holds their lock.
func (g *Group) noteFileLocks(ino objcache.Ino) {
	now, err := meta.ReadFileLocks(g.db, ino)
	if err != nil {
		g.logger.Error("locks not read", "ino", ino, "error", err) // waiters poll and find out
		return
	}
	g.fileLocks.note(ino, now)
}

func (g *Group) testLock(r *rpc.LockRequest, l filelock.Lock) *rpc.Reply {
	f := &g.fileLocks
	f.mu.Lock()
	all := f.mu.held[objcache.Ino(r.GetIno())]
	f.mu.Unlock()
	by, busy := all.Space(r.GetFlock()).Conflict(l)
	if !busy {
		return lockReply(nil, nil)
	}
	return lockReply(nil, wireLock(by))
}

// releaseFileLocks takes every lock from a session that has ended.
func (g *Group) releaseFileLocks(ctx context.Context, c objcache.ClientID) error {
	f := &g.fileLocks
	f.mu.Lock()
	var inos []objcache.Ino
	for ino, all := range f.mu.held {
		if slices.ContainsFunc(append(slices.Clone(all.Posix), all.Flock...), func(l filelock.Lock) bool { return l.Owner.Session == uint64(c) }) {
			inos = append(inos, ino)
		}
	}
	f.dropWaitersLocked(uint64(c))
	f.mu.Unlock()
	slices.Sort(inos)
	for _, ino := range inos {
		if err := g.releaseFileLocksOf(ctx, c, ino); err != nil {
			return err
		}
	}
	return nil
}

func (g *Group) releaseFileLocksOf(ctx context.Context, c objcache.ClientID, ino objcache.Ino) error {
	held, err := g.locks.Acquire(ctx, []string{meta.LockFileLocks(uint64(ino))}, txn.Age{Start: time.Now().UnixNano(), Client: g.PrivateClient()}, false)
	if err != nil {
		return err
	}
	defer held.Release()
	term := g.log.Term()
	all, err := meta.ReadFileLocks(g.db, ino)
	if err != nil {
		return err
	}
	row, err := meta.FileLocksRow(ino, meta.FileLocks{Posix: all.Posix.Without(uint64(c)), Flock: all.Flock.Without(uint64(c))})
	if err != nil {
		return err
	}
	if err := g.propose(&record.Entry{Kind: record.Entry_EFFECTS, EvalTerm: term, Rows: []*record.Row{row}}); err != nil {
		return err
	}
	g.noteFileLocks(ino)
	return nil
}
