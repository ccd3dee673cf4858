package group

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/filelock"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
	"github.com/objcache/objcache/server/ring"
)

func (w *world) fence(ctx context.Context, to objcache.GroupID, r *rpc.EndSessionRequest) error {
	kind := "fence"
	if r.GetRelease() {
		kind = "release"
	}
	_, err := send(w, kind, to, func(g *Group) (struct{}, error) { return struct{}{}, g.ApplyEnd(ctx, r) })
	return err
}

// session opens a session whose row a group keeps.
func (w *world) session(owner objcache.GroupID, nth int) objcache.ClientID {
	w.t.Helper()
	for c := objcache.ClientID(1); ; c++ {
		if w.view.Owner(ring.HashClient(c)) != owner {
			continue
		}
		if nth--; nth >= 0 {
			continue
		}
		if err := w.group(owner).OpenSession(w.t.Context(), c, "node"); err != nil {
			w.t.Fatal(err)
		}
		return c
	}
}

func (w *world) end(owner objcache.GroupID, c objcache.ClientID) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Second)
	defer cancel()
	if err := w.group(owner).EndSession(ctx, c); err != nil {
		w.t.Fatal(err)
	}
}

// rowsOf counts the rows between bounds.
func (w *world) rowsOf(id objcache.GroupID, bounds func() ([]byte, []byte)) int {
	w.t.Helper()
	n := 0
	lo, hi := bounds()
	if err := meta.Scan(w.group(id).DB(), lo, hi, func(_, _ []byte) (bool, error) { n++; return true, nil }); err != nil {
		w.t.Fatal(err)
	}
	return n
}

func TestSession_EndRefusesItEverywhereAndLeavesNothing(t *testing.T) {
	w := newWorld(t, 3)
	c := w.session(1, 0)
	a, b := w.ino(1, 0), w.ino(2, 0)
	if err := w.put(uint64(c), 1, a, b); err != nil {
		t.Fatal(err)
	}
	if _, err := w.lock(1, c, 1, a, true, 0); err != nil {
		t.Fatal(err)
	}
	w.group(1).Opened(c, objcache.Ino(a), 1)
	if err := w.group(1).Stage(t.Context(), c, &rpc.StageRequest{Ino: a, Seq: 1, Data: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	w.eventually("settled", w.settled)
	w.end(1, c)
	for id := range w.groups {
		if n := w.rowsOf(id, meta.ResultBounds) + w.rowsOf(id, meta.FileLocksBounds) + w.rowsOf(id, meta.SessionBounds) + w.rowsOf(id, meta.AcknowledgedBounds); n != 0 {
			t.Errorf("group %d still has %d rows of the session", id, n)
		}
		if w.rowsOf(id, meta.EndedBounds) != 1 {
			t.Errorf("group %d does not know that it has ended", id)
		}
	}
	if n, _ := w.group(1).Outstanding(); n != 0 || w.group(1).KnownOpen(objcache.Ino(a)) {
		t.Errorf("%d writes staged, open: %v", n, w.group(1).KnownOpen(objcache.Ino(a)))
	}
	for name, err := range map[string]error{
		"transaction of one group":   w.put(uint64(c), 2, w.ino(1, 1)),
		"transaction of two groups":  w.put(uint64(c), 3, w.ino(1, 2), w.ino(2, 2)),
		"another group's evaluation": second(w.group(2).Transact(t.Context(), Tx{Header: &rpc.Header{Client: uint64(c), Seq: 9}, Steps: []*rpc.Step{put(w.ino(2, 3))}})),
		"stage":                      w.group(2).Stage(t.Context(), c, &rpc.StageRequest{Ino: b, Seq: 1, Data: []byte("x")}),
		"lock":                       second(w.lock(1, c, 4, a, true, 0)),
		"renewal":                    w.group(1).RenewSession(c),
		"opening it again":           w.group(1).OpenSession(t.Context(), c, ""),
		"admission at another group": w.group(3).Admit(c),
	} {
		if !errors.Is(err, objcache.Fenced) {
			t.Errorf("%s: %v", name, err)
		}
	}
	w.eventually("settled", w.settled)
	for id := range w.groups { // the row, not only memory, refuses
		w.down(id)
		w.up(id)
	}
	if err := w.put(uint64(c), 5, w.ino(1, 1)); !errors.Is(err, objcache.Fenced) {
		t.Errorf("after a restart: %v", err)
	}
	if err := w.group(1).CollectEnded(time.Now()); err != nil || w.rowsOf(1, meta.EndedBounds) != 1 {
		t.Errorf("collected too early (%v)", err)
	}
	if err := w.group(1).CollectEnded(time.Now().Add(time.Hour)); err != nil || w.rowsOf(1, meta.EndedBounds) != 0 {
		t.Errorf("never collected (%v)", err)
	}
	if err := w.group(1).CheckSession(c); !errors.Is(err, objcache.Fenced) {
		t.Errorf("its owner says %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

// TestSession_NothingIsReleasedBeforeEveryGroupIsFenced keeps the news from one group.
func TestSession_NothingIsReleasedBeforeEveryGroupIsFenced(t *testing.T) {
	w := newWorld(t, 3)
	c, other := w.session(1, 0), w.session(1, 1)
	a := w.ino(2, 0)
	if err := second(w.group(2).Transact(t.Context(), Tx{Header: &rpc.Header{Client: uint64(c), Seq: 1}, Steps: []*rpc.Step{put(a)}})); err != nil {
		t.Fatal(err)
	}
	if _, err := w.lock(2, c, 2, a, true, 0); err != nil {
		t.Fatal(err)
	}
	w.losing(func(kind string, to objcache.GroupID) (bool, bool) { return kind == "fence" && to == 3, false })
	w.group(1).ExpireSessions(time.Now().Add(time.Hour))
	w.eventually("two groups are fenced", func() bool { return w.rowsOf(1, meta.EndedBounds) > 0 && w.rowsOf(2, meta.EndedBounds) > 0 })
	if _, err := w.lock(2, c, 3, a, true, 0); !errors.Is(err, objcache.Fenced) {
		t.Errorf("a fenced session gets a lock: %v", err)
	}
	w.down(1) // the owner of the row restarts in the middle
	w.up(1)
	if _, err := w.lock(2, other, 1, a, true, 0); !errors.Is(err, objcache.Busy) && !errors.Is(err, objcache.Fenced) {
		t.Errorf("its lock is gone while a group still listens to it: %v", err)
	}
	third := w.session(1, 2)
	if _, err := w.lock(2, third, 1, a, true, 0); !errors.Is(err, objcache.Busy) {
		t.Errorf("its lock is gone while a group still listens to it: %v", err)
	}
	w.losing(nil)
	w.eventually("the lock is free", func() bool { _, err := w.lock(2, third, 1, a, true, 0); return err == nil })
}

// TestSession_FlushUnderWayAtItsEndIsWhollyThereOrNot lets a session end at each step of a transaction over three groups.
func TestSession_FlushUnderWayAtItsEndIsWhollyThereOrNot(t *testing.T) {
	for _, at := range []struct {
		kind string
		to   objcache.GroupID
		log  record.Entry_Kind // as this entry is about to be logged there
	}{
		{"prepare before 2", 2, 0}, {"promise of 2", 2, record.Entry_PREPARE}, {"promise of 3", 3, record.Entry_PREPARE}, {"commit of 1", 1, record.Entry_COMMIT},
	} {
		t.Run(at.kind, func(t *testing.T) {
			w := newWorld(t, 3)
			c := w.session(2, 0)
			a, b, d := w.ino(1, 0), w.ino(2, 0), w.ino(3, 0)
			fenced := make(chan struct{})
			endNow := func() { // the rows of the end are logged before what is under way
				for id := range w.groups {
					if id != at.to || at.log == 0 {
						if err := w.group(id).ApplyEnd(context.Background(), &rpc.EndSessionRequest{Client: uint64(c)}); err != nil {
							t.Error(err)
						}
					}
				}
				close(fenced)
			}
			first := true
			if at.log == 0 {
				w.losing(func(kind string, to objcache.GroupID) (bool, bool) {
					if kind == "prepare" && to == at.to && first {
						first = false
						endNow()
					}
					return false, false
				})
			} else {
				log := w.groups[at.to].log
				log.mu.Lock()
				log.refuse = func(en *record.Entry) (bool, bool) {
					if en.GetKind() == at.log && first {
						first = false
						endNow()
					}
					return false, true
				}
				log.mu.Unlock()
			}
			err := w.put(uint64(c), 1, a, b, d)
			<-fenced
			w.losing(nil)
			w.eventually("settled", w.settled)
			there := 0
			for id, ino := range map[objcache.GroupID]uint64{1: a, 2: b, 3: d} {
				if w.has(id, ino) {
					there++
				}
			}
			if err == nil && there != 3 || err != nil && there != 0 {
				t.Errorf("%d of 3 parts are there after %v", there, err)
			}
			if at.kind == "prepare before 2" && err == nil {
				t.Error("a transaction was prepared for a session that had ended")
			}
		})
	}
}

func TestOnce_ARequestBelowTheAcknowledgedIsNotRunAgain(t *testing.T) {
	w := newWorld(t, 1)
	run := func(seq, below uint64, ino uint64) error {
		h := &rpc.Header{Client: 7, Seq: seq, AckBelow: below, Start: 1}
		_, err := w.group(1).Once(t.Context(), h, func() (*rpc.Reply, error) {
			return w.group(1).Transact(t.Context(), Tx{Header: h, Steps: []*rpc.Step{put(ino)}})
		})
		return err
	}
	for seq := range uint64(3) {
		if err := run(seq+1, seq+1, w.ino(1, int(seq))); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := run(2, 1, w.ino(1, 9)); !errors.Is(err, objcache.Invalid) || w.has(1, w.ino(1, 9)) {
			t.Errorf("a delayed request that its client has acknowledged: %v", err)
		}
		w.down(1)
		w.up(1)
	}
	if err := run(3, 1, w.ino(1, 2)); err != nil {
		t.Errorf("a request that is not acknowledged, again: %v", err)
	}
}

// lock takes (or with typ 0 gives back) the whole file for an owner of a session.
func (w *world) lock(id objcache.GroupID, c objcache.ClientID, seq, ino uint64, exclusive bool, ticket uint64) (*rpc.Reply, error) {
	return w.ask(id, c, seq, &rpc.LockRequest{Ino: ino, Ticket: ticket, Lock: &rpc.FileLock{Owner: 1, Exclusive: exclusive, End: filelock.EOF}})
}

func (w *world) ask(id objcache.GroupID, c objcache.ClientID, seq uint64, r *rpc.LockRequest) (*rpc.Reply, error) {
	g := w.group(id)
	return g.Lock(w.t.Context(), &rpc.Header{Client: uint64(c), Seq: seq, Start: 1}, r, func(meta.Reader) (*rpc.Attr, error) { return nil, nil })
}

func TestFileLocks_SurviveARestart(t *testing.T) {
	w := newWorld(t, 1)
	a := w.ino(1, 0)
	if err := w.put(7, 1, a); err != nil {
		t.Fatal(err)
	}
	if _, err := w.lock(1, 7, 2, a, true, 0); err != nil {
		t.Fatal(err)
	}
	w.down(1)
	w.up(1)
	if _, err := w.lock(1, 8, 1, a, false, 0); !errors.Is(err, objcache.Busy) {
		t.Errorf("after a restart: %v", err)
	}
	held, _, err := w.group(1).FileLockCounts()
	locked, lerr := w.group(1).FileLocked(objcache.Ino(a))
	if held != 1 || !locked || errors.Join(err, lerr) != nil {
		t.Errorf("%d locks, %v %v", held, err, lerr)
	}
	if _, err := w.ask(1, 7, 3, &rpc.LockRequest{Ino: a, Verb: rpc.LockRequest_UNLOCK, Lock: &rpc.FileLock{Owner: 1, End: filelock.EOF}}); err != nil {
		t.Fatal(err)
	}
	if n := w.rowsOf(1, meta.FileLocksBounds); n != 0 {
		t.Errorf("%d rows without a lock", n)
	}
	if _, err := w.lock(1, 8, 2, a, false, 0); err != nil {
		t.Error(err)
	}
	if _, err := w.lock(1, 8, 3, w.ino(1, 5), false, 0); !errors.Is(err, objcache.NotExist) {
		t.Errorf("lock of a file that is not there: %v", err)
	}
}

func TestFileLocks_QueueIsFairAndForgetsWhoGoesAway(t *testing.T) {
	w := newWorld(t, 1)
	a := w.ino(1, 0)
	if err := w.put(7, 1, a); err != nil {
		t.Fatal(err)
	}
	try := func(c objcache.ClientID, exclusive bool, ticket uint64) error {
		return second(w.lock(1, c, 0, a, exclusive, ticket))
	}
	unlock := func(c objcache.ClientID) {
		t.Helper()
		if _, err := w.ask(1, c, 0, &rpc.LockRequest{Ino: a, Verb: rpc.LockRequest_UNLOCK, Lock: &rpc.FileLock{Owner: 1, End: filelock.EOF}}); err != nil {
			t.Fatal(err)
		}
	}
	await := func(c objcache.ClientID, ticket uint64) error {
		return second(w.ask(1, c, 0, &rpc.LockRequest{Ino: a, Verb: rpc.LockRequest_AWAIT, Ticket: ticket, Lock: &rpc.FileLock{}}))
	}
	if err := try(1, false, 0); err != nil {
		t.Fatal(err)
	}
	if err := try(2, true, 5); !errors.Is(err, objcache.Busy) { // waits for the reader
		t.Fatal(err)
	}
	if err := try(3, false, 6); !errors.Is(err, objcache.Busy) { // a reader that comes later waits for the writer
		t.Errorf("a reader overtakes: %v", err)
	}
	if err := try(1, false, 7); err != nil { // but not he for whom the writer waits
		t.Errorf("the holder is kept back by who waits for it: %v", err)
	}
	if err := try(4, false, 0); err != nil { // nor one who does not wait, as on Linux
		t.Errorf("a lock that is free is refused: %v", err)
	}
	unlock(4)
	woken := make(chan error, 1)
	go func() { woken <- await(2, 5) }()
	unlock(1)
	if err := <-woken; err != nil {
		t.Fatal(err)
	}
	if err := try(2, true, 5); err != nil {
		t.Fatalf("its turn: %v", err)
	}
	if err := try(8, true, 9); !errors.Is(err, objcache.Busy) {
		t.Fatal(err)
	}
	if _, err := w.ask(1, 8, 0, &rpc.LockRequest{Ino: a, Verb: rpc.LockRequest_LEAVE, Ticket: 9, Lock: &rpc.FileLock{}}); err != nil {
		t.Fatal(err)
	}
	unlock(2)
	if err := try(3, false, 6); err != nil {
		t.Errorf("after the writers: %v", err)
	}
	if _, waiting, err := w.group(1).FileLockCounts(); waiting != 0 || err != nil {
		t.Errorf("%d wait", waiting)
	}
}
