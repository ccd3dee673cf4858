package group

import (
	"log/slog"
	"maps"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/meta"
)

func allRows(t *testing.T, r meta.Reader) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, bounds := range []func() ([]byte, []byte){meta.ReplicatedBounds, PlaceBounds} {
		lo, hi := bounds()
		err := meta.Scan(r, lo, hi, func(k, v []byte) (bool, error) {
			out[string(k)] = string(v)
			return true, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func TestReplayer_MakesTheRowsOfTheGroup(t *testing.T) {
	w := newWorld(t, 2)
	for i := range 5 {
		if err := w.put(7, uint64(i+1), w.ino(1, i), w.ino(2, i)); err != nil {
			t.Fatal(err)
		}
	}
	db, err := pebble.Open("", &pebble.Options{FS: vfs.NewMem(), DisableWAL: true, Logger: quiet{}})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	r, err := NewReplayer(2, db, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	w.eventually("every decision is known", func() bool { return len(w.group(2).inDoubt()) == 0 })
	log := w.groups[2].log
	for twice := 0; twice < 2; twice++ { // what the rows hold already is passed over
		for i, data := range log.entries {
			r.Apply(uint64(i+1), log.terms[i], data)
		}
	}
	if r.Applied() != uint64(len(log.entries)) {
		t.Errorf("applied %d of %d", r.Applied(), len(log.entries))
	}
	if got, want := allRows(t, db), allRows(t, w.group(2).DB()); !maps.Equal(got, want) || len(want) < 5 {
		t.Errorf("%d rows, the group has %d", len(got), len(want))
	}
}

func TestStale_OnlyWhatNobodyAliveHasStagedLongAgo(t *testing.T) {
	w := newWorld(t, 1)
	g := w.group(1)
	const living, dead, private = 5, 6, 7
	if err := g.OpenSession(t.Context(), living, "n"); err != nil {
		t.Fatal(err)
	}
	if err := g.Admit(living); err != nil {
		t.Fatal(err)
	}
	k := objcache.ChunkKey{Ino: objcache.Ino(w.ino(1, 0))}
	for _, c := range []objcache.ClientID{living, dead, private} {
		if err := g.Stage(t.Context(), c, &rpc.StageRequest{Ino: uint64(k.Ino), Seq: 1, Data: []byte("bytes")}); err != nil {
			t.Fatal(err)
		}
		if c != private {
			g.staged.mu.chunks[stageKey{c, k}].last = time.Now().Add(-time.Hour)
		}
	}
	if got := g.StaleStaged(); len(got) != 1 || got[0] != (StaleStage{dead, k, 5}) {
		t.Fatalf("%+v", got)
	}
	g.FreeStale(private)
	g.FreeStale(living)
	if n, _ := g.Outstanding(); n != 3 {
		t.Errorf("%d writes are outstanding", n)
	}
	g.FreeStale(dead)
	if n, _ := g.Outstanding(); n != 2 || len(g.StaleStaged()) != 0 {
		t.Errorf("%d writes are outstanding", n)
	}
}
