package group

import (
	"errors"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/record"
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
