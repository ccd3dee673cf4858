package replica

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// crash is the disk as a power loss would leave it, with what had been acknowledged by then.
type crash struct {
	fs    *vfs.MemFS
	acked int
	op    string
}

// crashing wraps mem so that every syncing or renaming operation leaves crash images taken just before it.
func crashing(mem *vfs.MemFS, acked *atomic.Int64, seed uint64, out *[]crash) vfs.FS {
	rng := rand.New(rand.NewPCG(seed, 1))
	var mu sync.Mutex // the log, its rotation and snapshots write at the same time
	return errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpRename, errorfs.OpRemove, errorfs.OpCreate:
			mu.Lock()
			defer mu.Unlock()
			n := int(acked.Load())
			for _, unsynced := range []int{0, 50} {
				*out = append(*out, crash{mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: unsynced, RNG: rng}), n, fmt.Sprint(op.Kind, " ", op.Path)})
			}
		}
		return nil
	}))
}

func TestCrash_AtEverySyncKeepsAcknowledgedEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewCrashableMem()
		var acked atomic.Int64
		var images []crash
		// Opening twice covers restarts; 24 entries a snapshot and 8 KiB a segment cover cuts and rotations.
		fsys := crashing(mem, &acked, 42, &images)
		n := 0
		for range 2 {
			r, _ := start(t, fsys)
			for range 60 {
				n++
				propose(t, r, uint64(n), 100+n*37%5000)
				acked.Store(int64(n))
			}
			closeReplica(t, r)
		}
		t.Logf("%d images", len(images))
		if len(images) < 400 {
			t.Fatalf("only %d images", len(images))
		}
		for _, c := range images {
			k := reopen(t, c.fs, c.acked, n, c.op)
			// The second life is acknowledged too and must survive a loss of power right away.
			reopen(t, c.fs.CrashClone(vfs.CrashCloneCfg{}), k+2, k+2, c.op)
		}
	})
}

// reopen checks what a crash left, proposes two more entries and returns how many it found.
func reopen(t *testing.T, fsys vfs.FS, lo, hi int, op string) int {
	t.Helper()
	j := openJournal(t, fsys)
	seen := inspect(t, fsys, j, op)
	r, err := Open(testConfig(fsys), j)
	if err != nil {
		t.Fatalf("crash before %s: %v", op, err)
	}
	if err := r.WaitLeader(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := j.values()
	if err := checkPrefix(got, lo, hi); err != nil {
		t.Fatalf("crash before %s: %v", op, err)
	}
	if !slices.Equal(seen, got) {
		t.Fatalf("crash before %s: Inspect saw %v, the replica %v", op, seen, got)
	}
	k := len(got)
	propose(t, r, uint64(k+1), 200)
	propose(t, r, uint64(k+2), 6000)
	closeReplica(t, r)
	return k
}
