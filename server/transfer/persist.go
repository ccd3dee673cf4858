package transfer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/group"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
	"github.com/objcache/objcache/server/ring"
)

func encode(m proto.Message) ([]byte, error) {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", m, err)
	}
	return b, nil
}

// persisting knows which inodes are being persisted, and which failed and when they are tried again.
type persisting struct {
	room    chan struct{}
	started int64 // ns; intents of before may be an earlier process's
	begun   map[string]bool
	mu      struct {
		sync.Mutex
		under    map[objcache.Ino]chan struct{}
		failed   map[objcache.Ino]failure
		claims   map[string]bool // deletes that this life has begun; kept while another life's may be on their way
		unpinned map[string]bool // uploads whose version is not there any more, by transaction
	}
}

type failure struct {
	err   error
	waits *waiting // what was in the way; nil: something else
	tries int
	first time.Time
	pause time.Duration
	next  time.Time
}

// Pauses after a failure to persist.
const (
	firstPause = 200 * time.Millisecond
	maxPause   = 30 * time.Second
	maxWait    = 5 * time.Second // instead, of what waits for others: in a chain of them these add up
	scanEvery  = 500 * time.Millisecond
	stuckAfter = requestsEnd + 2*maxWait // of a flush of everything without anything done: what waits for requests of before a restart is not stuck
)

func (p *persisting) init(workers int) {
	p.room = make(chan struct{}, workers)
	p.mu.under = map[objcache.Ino]chan struct{}{}
	p.mu.failed = map[objcache.Ino]failure{}
	p.mu.claims = map[string]bool{}
}

// errWait means that something else must reach external storage first.
var errWait = objcache.Errorf(objcache.Conflict, "waits for another object")

// waiting is an errWait that says for which inodes.
type waiting struct {
	inos    []uint64
	blocked bool // they are directories that had a part of the path before
}

func (w *waiting) Error() string {
	return fmt.Sprintf("waits for inodes %v: %v", w.inos, objcache.Conflict)
}
func (w *waiting) Unwrap() error { return errWait }

// waitFor is nil when nothing is in the way.
func waitFor(inos ...uint64) error {
	if len(inos) == 0 {
		return nil
	}
	return &waiting{inos: inos}
}

// Run persists what is due until ctx ends: files after FlushInterval, or at once while a server is short of room; deletes and what a crash left half
// done at once.
func (t *Transfer) Run(ctx context.Context) error {
	tick := time.NewTicker(scanEvery)
	defer tick.Stop()
	for {
		t.askForRoom(ctx)
		due, err := t.due(t.dueBefore())
		if err != nil {
			return err
		}
		t.persistAll(ctx, due)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// due lists the inodes that owe something since before a time, and those that need not wait.
func (t *Transfer) due(before time.Time) ([]objcache.Ino, error) {
	var inos []objcache.Ino
	now := t.now()
	lo, hi := meta.DirtyBounds()
	db := t.cfg.Group.DB()
	err := meta.Scan(db, lo, hi, func(k, _ []byte) (bool, error) {
		since, ino, ok := meta.ParseDirtyKey(k)
		if !ok {
			return true, nil
		}
		if since > before.UnixNano() {
			in, err := meta.Inode(db, ino)
			if err != nil {
				return false, err
			}
			if !in.GetDead() && !in.GetOrphan() && in.GetIntent() == nil && in.GetLost() == "" {
				return true, nil
			}
		}
		if t.mayTry(ino, now) {
			inos = append(inos, ino)
		}
		return true, nil
	})
	return inos, err
}

func (t *Transfer) mayTry(ino objcache.Ino, now time.Time) bool {
	t.persist.mu.Lock()
	defer t.persist.mu.Unlock()
	f, ok := t.persist.mu.failed[ino]
	return !ok || now.After(f.next)
}

func (t *Transfer) persistAll(ctx context.Context, inos []objcache.Ino) {
	var wg sync.WaitGroup
	for _, ino := range inos {
		select {
		case t.persist.room <- struct{}{}:
		case <-ctx.Done():
			wg.Wait()
			return
		}
		wg.Go(func() {
			defer func() { <-t.persist.room }()
			if err := t.Persist(ctx, ino); err != nil && !errors.Is(err, objcache.Conflict) && ctx.Err() == nil {
				t.cfg.Logger.Warn("not persisted yet", "ino", ino, "error", err)
			}
		})
	}
	wg.Wait()
}

// Stuck lists what waits for other objects and has been waiting for as long as a flush of everything is willing to.
func (t *Transfer) Stuck() map[objcache.Ino]error {
	t.forgetSettled()
	t.persist.mu.Lock()
	defer t.persist.mu.Unlock()
	out := map[objcache.Ino]error{}
	for ino, f := range t.persist.mu.failed {
		if !errors.Is(f.err, objcache.Conflict) || t.now().Sub(f.first) > stuckAfter {
			out[ino] = f.err
		}
	}
	return out
}

// forgetSettled drops the failures of inodes that owe nothing any more although no persist of theirs has succeeded since: a removed name, or another
// client's change of the bucket, can settle what is owed, too.
func (t *Transfer) forgetSettled() {
	t.persist.mu.Lock()
	failed := maps.Clone(t.persist.mu.failed)
	t.persist.mu.Unlock()
	for ino, f := range failed {
		if in, err := meta.Inode(t.cfg.Group.DB(), ino); err != nil || meta.Owes(in) {
			continue
		}
		t.persist.mu.Lock()
		if now := t.persist.mu.failed[ino]; now.tries == f.tries && now.first.Equal(f.first) {
			delete(t.persist.mu.failed, ino)
		}
		t.persist.mu.Unlock()
	}
}

// TryPersist is Persist for a caller that itself may be what another persist waits for: it does not wait for one under way.
func (t *Transfer) TryPersist(ctx context.Context, ino objcache.Ino) error {
	t.persist.mu.Lock()
	_, under := t.persist.mu.under[ino]
	t.persist.mu.Unlock()
	if under {
		return errWait
	}
	return t.persistWith(ctx, ino, func(ctx context.Context) error {
		in, err := meta.Inode(t.cfg.Group.DB(), ino)
		if err == nil && in.GetOrphan() && len(in.GetTrash()) > 0 && in.GetIntent() == nil {
			return t.aside(ctx, ino) // it is open, but somebody needs its place
		}
		return t.persistOne(ctx, ino)
	})
}

// Persist brings one inode of this group to external storage as it is now. nil: nothing is owed for the state it had at the call. A Conflict means that
// something else comes first; the background tries again.
func (t *Transfer) Persist(ctx context.Context, ino objcache.Ino) error {
	return t.persistWith(ctx, ino, func(ctx context.Context) error { return t.persistOne(ctx, ino) })
}

// persistWith runs f while nobody else persists the inode.
func (t *Transfer) persistWith(ctx context.Context, ino objcache.Ino, f func(context.Context) error) error {
	for {
		done := make(chan struct{})
		t.persist.mu.Lock()
		other := t.persist.mu.under[ino]
		if other == nil {
			t.persist.mu.under[ino] = done
		}
		t.persist.mu.Unlock()
		if other == nil {
			err := t.unlessGone(ino, t.outOfCircles(ctx, ino, f))
			t.persist.mu.Lock()
			delete(t.persist.mu.under, ino)
			t.noteLocked(ino, err)
			t.persist.mu.Unlock()
			close(done)
			return err
		}
		select {
		case <-other:
		case <-ctx.Done():
			return objcache.Errorf(objcache.KindOf(ctx.Err()), "persist of inode %d: %w", ino, ctx.Err())
		}
	}
}

// unlessGone is the error of a persist, unless the inode lost its last name meanwhile: then what failed is nobody's business any more.
func (t *Transfer) unlessGone(ino objcache.Ino, err error) error {
	if k := objcache.KindOf(err); err == nil || k != objcache.NotExist && k != objcache.Stale {
		return err
	}
	switch in, rerr := meta.Inode(t.cfg.Group.DB(), ino); {
	case rerr != nil:
		return rerr
	case in == nil:
		return nil
	case in.GetDead() || in.GetOrphan():
		return objcache.Errorf(objcache.Conflict, "removed meanwhile, its objects go at the next try: %v", err)
	}
	return err
}

func (t *Transfer) noteLocked(ino objcache.Ino, err error) {
	if err == nil {
		delete(t.persist.mu.failed, ino)
		t.wakeLocked(ino)
		return
	}
	f := t.persist.mu.failed[ino]
	f.err, f.tries, f.waits = err, f.tries+1, nil
	if w := (*waiting)(nil); errors.As(err, &w) {
		f.waits = w
	}
	if f.first.IsZero() {
		f.first = t.now()
	}
	longest := maxPause
	if errors.Is(err, objcache.Conflict) {
		longest = maxWait
	}
	f.pause = min(max(2*f.pause, firstPause), longest)
	f.next = t.now().Add(f.pause)
	t.persist.mu.failed[ino] = f
}

// wakeLocked lets what waited for an inode of this group be tried at once. Of very many, each waits out its pause.
func (t *Transfer) wakeLocked(ino objcache.Ino) {
	if len(t.persist.mu.failed) > maxSearch {
		return
	}
	for o, f := range t.persist.mu.failed {
		if f.waits != nil && slices.Contains(f.waits.inos, uint64(ino)) {
			f.next = t.now()
			t.persist.mu.failed[o] = f
		}
	}
}

// Problems lists what could not be persisted at the last try.
func (t *Transfer) Problems() map[objcache.Ino]error {
	t.persist.mu.Lock()
	defer t.persist.mu.Unlock()
	out := map[objcache.Ino]error{}
	for ino, f := range t.persist.mu.failed {
		out[ino] = f.err
	}
	return out
}

// Uploads is the number of inodes being persisted now.
func (t *Transfer) Uploads() int {
	t.persist.mu.Lock()
	defer t.persist.mu.Unlock()
	return len(t.persist.mu.under)
}

func (t *Transfer) persistOne(ctx context.Context, ino objcache.Ino) error {
	in, err := meta.Inode(t.cfg.Group.DB(), ino)
	if err != nil || in == nil {
		return err
	}
	switch {
	case in.GetIntent() != nil:
		if err := t.finish(ctx, in); err != nil {
			return err
		}
		return t.persistOne(ctx, ino)
	case in.GetLost() != "" && !in.GetDead():
		return t.revert(ctx, in)
	case in.GetOrphan():
		if t.cfg.Group.HasOpen(ino) {
			return t.endDeletes(ctx, ino)
		}
		return t.transact(ctx, &rpc.Step{Step: &rpc.Step_Forget{Forget: &rpc.Forget{Ino: uint64(ino)}}})
	case in.GetDir() != nil && in.GetDead():
		return t.finishDeadDir(ctx, in)
	case in.GetDir() != nil:
		return t.persistDir(ctx, in)
	case in.GetDead():
		return t.finishDeadFile(ctx, in)
	}
	for _, l := range in.GetLinks() {
		if err := t.persistLink(ctx, ino, l.GetDir(), l.GetName()); err != nil {
			return errors.Join(err, t.endDeletes(ctx, ino)) // whoever has a claimed name now may be what this waits for
		}
	}
	return t.emptyTrash(ctx, ino)
}

func (t *Transfer) transact(ctx context.Context, steps ...*rpc.Step) error {
	_, err := t.cfg.Group.Transact(ctx, group.Tx{Header: &rpc.Header{Start: t.now().UnixNano()}, Steps: steps})
	return err
}

// place is where a name stands in its bucket and who else has a say there.
func (t *Transfer) place(ctx context.Context, dir uint64, name string, ino objcache.Ino) (*rpc.PathReply, error) {
	r, err := t.cfg.Peers.Call(ctx, ring.HashInode(objcache.Ino(dir)), &rpc.Request{
		Op: &rpc.Request_Path{Path: &rpc.PathRequest{Ino: dir, Child: name, ChildIno: uint64(ino)}},
	})
	if err != nil {
		return nil, err
	}
	return r.GetPath(), nil
}

// inspect reads an inode wherever it lives; nil when it is gone.
func (t *Transfer) inspect(ctx context.Context, ino uint64) (*record.Inode, error) {
	r, err := t.cfg.Peers.Call(ctx, ring.HashInode(objcache.Ino(ino)), &rpc.Request{Op: &rpc.Request_Inspect{Inspect: &rpc.InspectRequest{Ino: ino}}})
	if k := objcache.KindOf(err); err != nil && (k == objcache.Stale || k == objcache.NotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return meta.DecodeInode(r.GetInspect().GetInode())
}

// persistElsewhere asks the owner of another inode to persist it now.
func (t *Transfer) persistElsewhere(ctx context.Context, ino uint64) error {
	_, err := t.cfg.Peers.Call(ctx, ring.HashInode(objcache.Ino(ino)), &rpc.Request{Op: &rpc.Request_Persist{Persist: &rpc.PersistRequest{Ino: ino}}})
	return err
}

// PersistShare persists everything that this group owes now, reporting what is left. It ends when nothing owed at the
// call is owed any more, when only what keeps failing is left, or with ctx.
func (t *Transfer) PersistShare(ctx context.Context, report func(left int)) error {
	deadline := map[objcache.Ino]int{}
	asOf := t.now()
	var before []objcache.Ino
	var since time.Time
	for {
		owed, err := t.owedBefore(asOf)
		if err != nil {
			return err
		}
		report(len(owed))
		if len(owed) == 0 {
			return nil
		}
		if !slices.Equal(owed, before) {
			before, since = owed, t.now()
		} else if t.now().Sub(since) > stuckAfter && t.Uploads() == 0 {
			return nil // the problems say who waits for what
		}
		t.persistAll(ctx, owed)
		if ctx.Err() != nil {
			return objcache.Errorf(objcache.KindOf(ctx.Err()), "persist: %w", ctx.Err())
		}
		again := false
		problems := t.Problems()
		for _, ino := range owed {
			if err := problems[ino]; err != nil && !errors.Is(err, objcache.Conflict) {
				deadline[ino]++
			}
			again = again || deadline[ino] < 3
		}
		if !again {
			return nil // the problems say why
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

func (t *Transfer) owedBefore(asOf time.Time) ([]objcache.Ino, error) {
	var inos []objcache.Ino
	db := t.cfg.Group.DB()
	lo, hi := meta.DirtyBounds()
	err := meta.Scan(db, lo, hi, func(k, _ []byte) (bool, error) {
		since, ino, ok := meta.ParseDirtyKey(k)
		if !ok || since > asOf.UnixNano() {
			return true, nil
		}
		in, err := meta.Inode(db, ino)
		if err != nil {
			return false, err
		}
		// An object may stay as long as its file is open, but not because nobody has said yet what is (after a restart).
		if in != nil && (!in.GetOrphan() || len(in.GetTrash()) > 0 && !t.cfg.Group.KnownOpen(ino)) {
			inos = append(inos, ino)
		}
		return true, nil
	})
	return inos, err
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return objcache.Errorf(objcache.KindOf(ctx.Err()), "%w", ctx.Err())
	}
}
