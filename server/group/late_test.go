package group

import (
	"errors"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
	"github.com/objcache/objcache/server/ring"
	"github.com/objcache/objcache/server/txn"
)

// prepareAgain delivers a Prepare that the network has kept.
func (w *world) prepareAgain(r *rpc.PrepareRequest) error {
	w.t.Helper()
	got, err := w.group(objcache.GroupID(r.GetGroup())).Prepare(w.t.Context(), r)
	if err != nil {
		w.t.Fatal(err)
	}
	return got.GetFailure().Err()
}

// putDead makes an inode that may be forgotten.
func putDead(ino uint64) *rpc.Step {
	b, err := proto.Marshal(&record.Inode{Ino: ino, Mode: objcache.ModeRegular, Version: 1, Dead: true})
	if err != nil {
		panic(err)
	}
	return &rpc.Step{Step: &rpc.Step_PutInode{PutInode: &rpc.PutInode{Inode: b}}}
}

// forget removes an inode at its group alone, as a later transaction may.
func (w *world) forget(id objcache.GroupID, ino uint64) {
	w.t.Helper()
	steps := []*rpc.Step{{Step: &rpc.Step_Forget{Forget: &rpc.Forget{Ino: ino}}}}
	if _, err := w.group(id).Transact(w.t.Context(), Tx{Header: &rpc.Header{Start: 2}, Steps: steps}); err != nil {
		w.t.Fatal(err)
	}
}

// The participant has applied the commit, the coordinator does not know and keeps its decision: whoever asks about the late promise hears "committed".
func TestPrepare_ThatComesAgainAfterItsCommitIsRefused(t *testing.T) {
	for name, restart := range map[string]bool{"at once": false, "after a restart": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 2)
			a, b := w.ino(1, 0), w.ino(2, 0)
			w.losing(func(kind string, _ objcache.GroupID) (bool, bool) { return false, kind == "decide" })
			steps := []*rpc.Step{put(a), putDead(b)}
			if _, err := w.group(1).Transact(t.Context(), Tx{Header: &rpc.Header{Client: 7, Seq: 1, Start: 1}, Steps: steps}); err != nil {
				t.Fatal(err)
			}
			w.eventually("committed", func() bool { return w.has(2, b) && w.nothingPrepared(2) })
			w.forget(2, b)
			if restart {
				w.down(2)
				w.up(2)
			}
			err := w.prepareAgain(w.sent[0])
			w.eventually("nothing is in doubt", func() bool { return w.nothingPrepared(2) })
			if w.has(2, b) {
				t.Fatal("a transaction was applied twice")
			}
			if !errors.Is(err, objcache.Conflict) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// nothingPrepared reports whether a group has no promise.
func (w *world) nothingPrepared(id objcache.GroupID) bool {
	g := w.group(id)
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.mu.prepared) == 0
}

// promiseAlone is a Prepare that group 1 may have sent to group 2.
func (w *world) promiseAlone(txSeq, minLive uint64, nth int) error {
	v := w.view.Version
	return w.prepareAgain(&rpc.PrepareRequest{
		Group: 2, Client: 9, Seq: 1, TxSeq: txSeq, Coordinator: 1, Incarnation: w.group(1).Incarnation(), Start: 1,
		ViewEpoch: v.Epoch, ViewVersion: v.Version, Steps: []*rpc.Step{put(w.ino(2, nth))}, MinLiveTxSeq: minLive,
	})
}

func TestPrepare_BelowWhatIsLiveOrOfAnOlderTermIsRefusedAlsoAfterARestart(t *testing.T) {
	w := newWorld(t, 2)
	w.losing(func(kind string, _ objcache.GroupID) (bool, bool) { return kind == "query", false })
	seq := func(term, n uint64) uint64 { s, _ := txn.TxSeq(term, n); return s }
	if err := w.promiseAlone(seq(1, 9), seq(1, 7), 0); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := w.promiseAlone(seq(1, 6), seq(1, 6), 1); !errors.Is(err, objcache.Conflict) {
			t.Errorf("below the bar: %v", err)
		}
		w.down(2)
		w.up(2)
	}
	if err := w.promiseAlone(seq(1, 7), seq(1, 7), 2); err != nil {
		t.Errorf("at the bar: %v", err)
	}
	if err := w.promiseAlone(seq(2, 1), seq(2, 1), 3); err != nil {
		t.Errorf("of a newer term: %v", err)
	}
	if err := w.promiseAlone(seq(1, 10), seq(1, 10), 4); !errors.Is(err, objcache.Conflict) {
		t.Errorf("of an older term: %v", err)
	}
}

// finished counts the decided transactions that a group remembers.
func (w *world) finished(id objcache.GroupID) (n int) {
	w.t.Helper()
	err := meta.Scan(w.group(id).DB(), []byte("Gf"), []byte("Gg"), func(_, _ []byte) (bool, error) { n++; return true, nil })
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

func TestFinished_AreForgottenWhenTheCoordinatorHasGoneOn(t *testing.T) {
	w := newWorld(t, 2)
	for i := range 20 {
		if err := w.put(7, uint64(i+1), w.ino(1, i), w.ino(2, i)); err != nil {
			t.Fatal(err)
		}
		w.eventually("settled", w.settled)
	}
	if n := w.finished(2); n != 1 {
		t.Errorf("%d transactions are remembered, one after the other needs 1", n)
	}
}

func TestApply_RefusesAnEvaluationUnderAnotherView(t *testing.T) {
	w := newWorld(t, 2)
	g := w.group(1)
	b := g.basis()
	other, err := ring.New(objcache.ViewVersion{Epoch: 1, Version: 2}, w.view.Members)
	if err != nil {
		t.Fatal(err)
	}
	b.view = other
	for _, k := range []record.Entry_Kind{record.Entry_EFFECTS, record.Entry_PREPARE, record.Entry_COMMIT} {
		en := b.entry(k, objcache.TxID{Client: 1, Seq: 1, TxSeq: 1})
		en.Rows = []*record.Row{{Key: meta.InodeKey(5), Value: []byte{}}}
		if err := g.propose(en); outcomeOf(err) != txn.No || w.has(1, 5) {
			t.Errorf("%v: %v", k, err)
		}
	}
	r := &rpc.PrepareRequest{Group: 1, Client: 9, Seq: 1, TxSeq: 1, Coordinator: 2, ViewEpoch: 1, ViewVersion: 2}
	if err := w.prepareAgain(r); !errors.Is(err, objcache.NotOwner) {
		t.Errorf("a Prepare under another view: %v", err)
	}
}
