package group

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
)

func (w *world) has(id objcache.GroupID, ino uint64) bool {
	w.t.Helper()
	in, err := meta.Inode(w.group(id).DB(), objcache.Ino(ino))
	if err != nil {
		w.t.Fatal(err)
	}
	return in != nil
}

// promises reports whether a group has prepared transactions.
func (w *world) promises(id objcache.GroupID) bool {
	w.t.Helper()
	n := 0
	lo, hi := meta.PreparedBounds()
	if err := meta.Scan(w.group(id).DB(), lo, hi, func(_, _ []byte) (bool, error) { n++; return true, nil }); err != nil {
		w.t.Fatal(err)
	}
	return n > 0
}

// settled reports whether nobody has a promise or decision left.
func (w *world) settled() bool {
	for id := range w.groups {
		g := w.group(id)
		n := 0
		count := func(_, _ []byte) (bool, error) { n++; return true, nil }
		for _, bounds := range []func() ([]byte, []byte){meta.PreparedBounds, meta.DecisionBounds} {
			lo, hi := bounds()
			if err := meta.Scan(g.DB(), lo, hi, count); err != nil {
				w.t.Fatal(err)
			}
		}
		if n > 0 {
			return false
		}
	}
	return true
}

func TestTransact_CommitsAtEveryGroupAndLeavesNothingInDoubt(t *testing.T) {
	w := newWorld(t, 3)
	a, b, c := w.ino(1, 0), w.ino(2, 0), w.ino(3, 0)
	if err := w.put(7, 1, a, b, c); err != nil {
		t.Fatal(err)
	}
	w.eventually("settled", w.settled)
	if !w.has(1, a) || !w.has(2, b) || !w.has(3, c) {
		t.Error("an inode is missing")
	}
}

func TestTransact_OneRefusalLeavesNothingAnywhere(t *testing.T) {
	w := newWorld(t, 3)
	a, b, c := w.ino(1, 0), w.ino(2, 0), w.ino(3, 0)
	if err := w.put(7, 1, a, b, c, c); !errors.Is(err, objcache.Exist) {
		t.Fatal(err)
	}
	w.eventually("settled", w.settled)
	if w.has(1, a) || w.has(2, b) || w.has(3, c) {
		t.Error("a part of a refused transaction is there")
	}
	if err := w.put(7, 2, a, b, c); err != nil {
		t.Errorf("locks stayed behind: %v", err)
	}
}

func TestTransact_TwoCoordinatorsOfNobodysRequestsAreToldApart(t *testing.T) {
	w := newWorld(t, 3)
	for _, id := range []objcache.GroupID{1, 2} {
		w.group(id).mu.counter = 0 // both number their transactions alike
	}
	held := make(chan struct{})
	w.losing(func(kind string, _ objcache.GroupID) (bool, bool) {
		if kind == "decide" {
			<-held
		}
		return false, false
	})
	for i, id := range []objcache.GroupID{1, 2} {
		steps := []*rpc.Step{put(w.ino(id, 1)), put(w.ino(3, i))}
		if _, err := w.group(id).Transact(t.Context(), Tx{Header: &rpc.Header{Start: 1}, Steps: steps}); err != nil {
			t.Fatal(err)
		}
	}
	w.losing(nil)
	close(held)
	w.eventually("settled", w.settled)
	if !w.has(3, w.ino(3, 0)) || !w.has(3, w.ino(3, 1)) {
		t.Error("one transaction took the place of the other")
	}
}

func TestParticipant_ThatCrashedAfterItsPromiseLearnsTheOutcome(t *testing.T) {
	for name, commit := range map[string]bool{"commit": true, "abort": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 2)
			a, b := w.ino(1, 0), w.ino(2, 0)
			w.losing(func(kind string, to objcache.GroupID) (bool, bool) {
				// The vote arrives or is lost; the decision and the first questions never do.
				return kind != "prepare", kind == "prepare" && !commit
			})
			if err := w.put(7, 1, a, b); (err == nil) != commit {
				t.Fatal(err)
			}
			w.down(2)
			w.up(2)
			w.losing(func(kind string, _ objcache.GroupID) (bool, bool) { return kind == "decide", false })
			w.eventually("the participant asks", func() bool {
				g := w.group(2)
				g.mu.Lock()
				defer g.mu.Unlock()
				return len(g.mu.prepared) == 0
			})
			if w.has(2, b) != commit || w.has(1, a) != commit {
				t.Errorf("participant has it: %v, coordinator: %v, want %v", w.has(2, b), w.has(1, a), commit)
			}
		})
	}
}

func TestCoordinator_ThatCrashedTellsOrDeniesAfterItsRestart(t *testing.T) {
	for name, c := range map[string]struct{ logged, want bool }{"before commit": {false, false}, "after commit": {true, true}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 2)
			a, b := w.ino(1, 0), w.ino(2, 0)
			l := w.groups[1].log
			l.mu.Lock()
			l.refuse = func(en *record.Entry) (bool, bool) {
				if en.GetKind() == record.Entry_COMMIT {
					return true, c.logged
				}
				return false, true
			}
			l.mu.Unlock()
			if err := w.put(7, 1, a, b); !errors.Is(err, objcache.Unavailable) {
				t.Fatal(err)
			}
			w.down(1)
			w.up(1)
			w.eventually("settled", w.settled)
			if w.has(1, a) != c.want || w.has(2, b) != c.want {
				t.Errorf("coordinator %v, participant %v, want %v", w.has(1, a), w.has(2, b), c.want)
			}
		})
	}
}

func TestQuery_OnlyTheIncarnationThatCoordinatedDenies(t *testing.T) {
	w := newWorld(t, 1)
	g := w.group(1)
	for incarnation, want := range map[string]rpc.QueryReply_Outcome{g.Incarnation(): rpc.QueryReply_ABORTED, "another": rpc.QueryReply_UNKNOWN} {
		r, err := g.Query(t.Context(), &rpc.QueryRequest{Incarnation: incarnation, Client: 5, Seq: 6, TxSeq: 7})
		if err != nil || r.GetOutcome() != want {
			t.Errorf("incarnation %q: %v, %v", incarnation, r, err)
		}
	}
	g.setPending(objcache.TxID{Client: 5, Seq: 6, TxSeq: 7}, true)
	r, err := g.Query(t.Context(), &rpc.QueryRequest{Incarnation: g.Incarnation(), Client: 5, Seq: 6, TxSeq: 7})
	if err != nil || r.GetOutcome() != rpc.QueryReply_PENDING {
		t.Errorf("undecided: %v, %v", r, err)
	}
}

// create is a request that makes an inode, as a handler runs it.
func (w *world) create(ctx context.Context, h *rpc.Header, ino uint64, runs *int) error {
	g := w.group(1)
	_, err := g.Once(ctx, h, func() (*rpc.Reply, error) {
		*runs++
		return g.Transact(ctx, Tx{Header: h, Steps: []*rpc.Step{put(ino)}})
	})
	return err
}

// The COMMIT's append has failed for its caller, and reaches the log all the same: a participant that asks then must not be told that there was none.
func TestQuery_AnswersOnlyBehindAReadPoint(t *testing.T) {
	w := newWorld(t, 2)
	a, b := w.ino(1, 0), w.ino(2, 0)
	l := w.groups[1].log
	l.mu.Lock()
	l.late = func(en *record.Entry) bool { return en.GetKind() == record.Entry_COMMIT }
	l.mu.Unlock()
	if err := w.put(7, 1, a, b); !errors.Is(err, objcache.Unavailable) {
		t.Fatal(err)
	}
	w.eventually("group 2 knows what became of its promise", func() bool { return !w.promises(2) })
	if err := l.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !w.has(1, a) || !w.has(2, b) {
		t.Errorf("at the coordinator: %v, at the participant: %v", w.has(1, a), w.has(2, b))
	}
}

func TestTransact_IsAnsweredOnlyWhenItIsInTheLog(t *testing.T) {
	for name, inos := range map[string]func(w *world) []uint64{
		"one group":  func(w *world) []uint64 { return []uint64{w.ino(1, 0)} },
		"two groups": func(w *world) []uint64 { return []uint64{w.ino(1, 0), w.ino(2, 0)} },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 2)
			l := w.groups[1].log
			l.mu.Lock()
			l.refuse = func(*record.Entry) (bool, bool) { return true, false }
			l.mu.Unlock()
			if err := w.put(7, 1, inos(w)...); !errors.Is(err, objcache.Unavailable) {
				t.Errorf("acknowledged, but not logged: %v", err)
			}
		})
	}
}

func TestOnce_ARetriedRequestRunsOnceAlsoAfterARestart(t *testing.T) {
	w := newWorld(t, 1)
	h, runs := &rpc.Header{Client: 7, Seq: 1}, 0
	for i := range 4 {
		if err := w.create(t.Context(), h, w.ino(1, 0), &runs); err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			w.down(1)
			w.up(1)
		}
	}
	if runs != 1 {
		t.Errorf("ran %d times", runs)
	}
}

func TestOnce_AnUnknownOutcomeIsLookedUpBeforeTheRequestRunsAgain(t *testing.T) {
	for name, logged := range map[string]bool{"logged after all": true, "not logged": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			l := w.groups[1].log
			first := true
			l.mu.Lock()
			l.refuse = func(*record.Entry) (bool, bool) {
				if first {
					first = false
					return true, logged
				}
				return false, true
			}
			l.mu.Unlock()
			h, runs := &rpc.Header{Client: 7, Seq: 1}, 0
			if err := w.create(t.Context(), h, w.ino(1, 0), &runs); !errors.Is(err, objcache.Unavailable) {
				t.Fatal(err)
			}
			if err := w.create(t.Context(), h, w.ino(1, 0), &runs); err != nil {
				t.Errorf("the retry: %v", err)
			}
		})
	}
}

func TestOnce_WhoWaitsForARequestThatWasGivenUpRunsIt(t *testing.T) {
	w := newWorld(t, 1)
	g, h := w.group(1), &rpc.Header{Client: 7, Seq: 1}
	gone, leave := context.WithCancel(t.Context())
	started, second := make(chan struct{}), make(chan error)
	go func() {
		_, err := g.Once(gone, h, func() (*rpc.Reply, error) {
			close(started)
			<-gone.Done()
			return nil, objcache.Errorf(objcache.Interrupted, "given up")
		})
		second <- err
	}()
	<-started
	retried := make(chan error)
	go func() {
		_, err := g.Once(t.Context(), h, func() (*rpc.Reply, error) { return &rpc.Reply{}, nil })
		retried <- err
	}()
	leave()
	if err := <-second; !errors.Is(err, objcache.Interrupted) {
		t.Error(err)
	}
	if err := <-retried; err != nil {
		t.Errorf("the retry was given up with the first: %v", err)
	}
}

func TestRead_WaitsForThePreparedKey(t *testing.T) {
	w := newWorld(t, 2)
	a, b := w.ino(1, 0), w.ino(2, 0)
	w.losing(func(kind string, _ objcache.GroupID) (bool, bool) { return kind != "prepare", false })
	if err := w.put(7, 1, a, b); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := w.group(2).WaitDecided(short, meta.LockInode(b)); !errors.Is(err, objcache.Unavailable) {
		t.Fatalf("a reader did not wait for a commit that its client may know of: %v", err)
	}
	w.losing(nil)
	if err := w.group(2).WaitDecided(t.Context(), meta.LockInode(b)); err != nil || !w.has(2, b) {
		t.Errorf("after the decision: %v", err)
	}
}

// stage stages 10 bytes of a file at its owner and returns the steps of their flush.
func (w *world) stage(ino uint64, first, last uint64) []*rpc.Step {
	w.t.Helper()
	for s := first; s <= last; s++ {
		if err := w.group(1).Stage(w.t.Context(), 7, &rpc.StageRequest{Ino: ino, Seq: s, Off: int64(s%100) * 10, Data: make([]byte, 10)}); err != nil {
			w.t.Fatal(err)
		}
	}
	return []*rpc.Step{
		{Step: &rpc.Step_FlushInode{FlushInode: &rpc.FlushInode{Ino: ino, Version: 1, Size: 100}}},
		{Step: &rpc.Step_CommitChunk{CommitChunk: &rpc.CommitChunk{Ino: ino, Client: 7, First: first, Seq: last, Version: 2}}},
	}
}

func TestStage_WhatIsLostOrNeverNamedNeitherCommitsNorStays(t *testing.T) {
	w := newWorld(t, 1)
	ino := w.ino(1, 0)
	if err := w.put(7, 1, ino); err != nil {
		t.Fatal(err)
	}
	old := w.stage(ino, 1, 3)
	w.down(1)
	w.groups[1].bytes.live = map[uint64][]byte{} // what nobody retained is free after a start
	w.up(1)
	if _, err := w.group(1).Transact(t.Context(), Tx{Header: &rpc.Header{Client: 7, Seq: 2}, Steps: old}); !errors.Is(err, objcache.StageLost) {
		t.Fatal(err)
	}
	w.stage(ino, 1, 2)
	w.stage(ino, 2, 2) // sent again
	steps := w.stage(ino, 101, 102)
	if _, err := w.group(1).Transact(t.Context(), Tx{Header: &rpc.Header{Client: 7, Seq: 3}, Steps: steps}); err != nil {
		t.Fatal(err)
	}
	if n, _ := w.group(1).Outstanding(); n != 0 || w.groups[1].bytes.count() != 2 {
		t.Errorf("%d writes outstanding, %d places live, want 0 and 2", n, w.groups[1].bytes.count())
	}
}

func TestStage_ExpiresWithItsSession(t *testing.T) {
	w := newWorld(t, 1)
	w.stage(w.ino(1, 0), 1, 3)
	w.group(1).ExpireStaged(time.Now().Add(time.Minute), func(objcache.ClientID) bool { return true })
	if n := w.groups[1].bytes.count(); n != 3 {
		t.Errorf("%d places live while the session is", n)
	}
	w.group(1).ExpireStaged(time.Now().Add(time.Minute), func(objcache.ClientID) bool { return false })
	if n := w.groups[1].bytes.count(); n != 0 {
		t.Errorf("%d places live after the session", n)
	}
}

func TestReadPinned_WaitsForThePinAndNeverTakesItsAbsenceForNothing(t *testing.T) {
	w := newWorld(t, 2)
	a, b := w.ino(1, 0), w.ino(2, 0)
	if err := w.put(7, 1, a, b); err != nil {
		t.Fatal(err)
	}
	k := objcache.ChunkKey{Ino: objcache.Ino(b)}
	commit := &rpc.Step{Step: &rpc.Step_CommitChunk{CommitChunk: &rpc.CommitChunk{Ino: b, Version: 2, Inline: []*rpc.Inline{{Data: []byte("bytes")}}}}}
	if _, err := w.group(2).Transact(t.Context(), Tx{Header: &rpc.Header{}, Steps: []*rpc.Step{commit}}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.group(2).HasBytes(t.Context(), k, 2); !errors.Is(err, objcache.Conflict) {
		t.Errorf("a version that is not pinned: %v", err)
	}
	w.losing(func(kind string, _ objcache.GroupID) (bool, bool) { return kind != "prepare", false })
	pin := []*rpc.Step{
		{Step: &rpc.Step_SetInode{SetInode: &rpc.SetInode{Ino: a, Set: &rpc.SetattrRequest{Ino: a}}}},
		{Step: &rpc.Step_PinChunk{PinChunk: &rpc.PinChunk{Ino: b, Version: 2}}},
	}
	if _, err := w.group(1).Transact(t.Context(), Tx{Header: &rpc.Header{}, Steps: pin}); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if has, err := w.group(2).HasBytes(short, k, 2); err == nil {
		t.Fatalf("an upload did not wait for the pin's decision: %v", has)
	}
	w.losing(nil)
	if has, err := w.group(2).HasBytes(t.Context(), k, 2); err != nil || !has {
		t.Errorf("after the decision: %v, %v", has, err)
	}
	p := make([]byte, 5)
	if gaps, err := w.group(2).ReadPinned(t.Context(), k, 2, 0, p); err != nil || len(gaps) > 0 || string(p) != "bytes" {
		t.Errorf("pinned bytes: %q, %v, %v", p, gaps, err)
	}
}
