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
	"github.com/objcache/objcache/server/txn"
)

// fileLocks is who waits for file locks; the locks themselves are in rows.
type fileLocks struct {
	db meta.Reader
	mu struct {
		sync.Mutex
		waiting map[objcache.Ino][]*waiter // first come first
	}
}

func (f *fileLocks) init(db meta.Reader) {
	f.db = db
	f.mu.waiting = map[objcache.Ino][]*waiter{}
}

// held reads the locks of one space of a file.
func (f *fileLocks) held(ino objcache.Ino, flock bool) (filelock.Table, error) {
	all, err := meta.ReadFileLocks(f.db, ino)
	return *all.Space(flock), err
}

// FileLocked reports whether somebody has a lock on a file.
func (g *Group) FileLocked(ino objcache.Ino) (bool, error) {
	all, err := meta.ReadFileLocks(g.db, ino)
	return !all.Empty(), err
}

// eachFileLocks calls f with the locks of every file that has some.
func (g *Group) eachFileLocks(f func(ino objcache.Ino, all meta.FileLocks)) error {
	lo, hi := meta.FileLocksBounds()
	return meta.Scan(g.db, lo, hi, func(k, v []byte) (bool, error) {
		ino, ok := meta.ParseFileLocksKey(k)
		all, err := meta.DecodeFileLocks(v)
		if !ok || err != nil {
			return false, objcache.Errorf(objcache.Corrupt, "locks of inode %d: %w", ino, err)
		}
		f(ino, all)
		return true, nil
	})
}

// FileLockCounts returns how many locks the group holds for clients, and how many wait for one.
func (g *Group) FileLockCounts() (held, waiting uint64, err error) {
	err = g.eachFileLocks(func(_ objcache.Ino, all meta.FileLocks) { held += uint64(len(all.Posix) + len(all.Flock)) })
	f := &g.fileLocks
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, ws := range f.mu.waiting {
		waiting += uint64(len(ws))
	}
	return held, waiting, err
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
		return g.testLock(r, l)
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
	return g.Transact(ctx, Tx{Header: h, Steps: []*rpc.Step{step}, Reply: reply, Then: func() { g.fileLocks.wake(objcache.Ino(r.GetIno())) }})
}

func (g *Group) testLock(r *rpc.LockRequest, l filelock.Lock) (*rpc.Reply, error) {
	t, err := g.fileLocks.held(objcache.Ino(r.GetIno()), r.GetFlock())
	if err != nil {
		return nil, err
	}
	if by, busy := t.Conflict(l); busy {
		return lockReply(nil, wireLock(by)), nil
	}
	return lockReply(nil, nil), nil
}

// releaseFileLocks takes every lock from a session that has ended.
func (g *Group) releaseFileLocks(ctx context.Context, c objcache.ClientID) error {
	f := &g.fileLocks
	f.mu.Lock()
	f.dropWaitersLocked(uint64(c))
	f.mu.Unlock()
	var inos []objcache.Ino
	err := g.eachFileLocks(func(ino objcache.Ino, all meta.FileLocks) {
		if slices.ContainsFunc(append(all.Posix, all.Flock...), func(l filelock.Lock) bool { return l.Owner.Session == uint64(c) }) {
			inos = append(inos, ino)
		}
	})
	if err != nil {
		return err
	}
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
	b := g.basis()
	all, err := meta.ReadFileLocks(g.db, ino)
	if err != nil {
		return err
	}
	row, err := meta.FileLocksRow(ino, meta.FileLocks{Posix: all.Posix.Without(uint64(c)), Flock: all.Flock.Without(uint64(c))})
	if err != nil {
		return err
	}
	if err := g.write(b, row); err != nil {
		return err
	}
	g.fileLocks.wake(ino)
	return nil
}
