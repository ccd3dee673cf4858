package replica

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/objcache/objcache"
)

func TestPropose_ResultReachesTheProposerAndSurvivesRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := vfs.NewCrashableMem()
		n := 0
		for range 3 {
			r, j := start(t, fsys)
			if err := checkPrefix(j.values(), n, n); err != nil {
				t.Fatal(err)
			}
			for range 100 {
				n++
				propose(t, r, uint64(n), 300)
			}
			closeReplica(t, r)
		}
	})
}

func TestPropose_RefusesLargeEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := start(t, vfs.NewMem())
		defer closeReplica(t, r)
		if _, err := r.Propose(t.Context(), make([]byte, MaxEntry+1)); !errors.Is(err, objcache.Invalid) {
			t.Fatalf("err %v", err)
		}
		propose(t, r, 1, MaxEntry)
	})
}

func TestPropose_CancelledOrClosedIsUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := start(t, vfs.NewMem())
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := r.Propose(ctx, entry(1, 8)); objcache.KindOf(err) != objcache.Unavailable {
			t.Fatalf("err %v", err)
		}
		closeReplica(t, r)
		for name, f := range map[string]func(context.Context) error{"Read": r.Read, "WaitLeader": r.WaitLeader,
			"Propose": func(ctx context.Context) error { _, err := r.Propose(ctx, entry(1, 8)); return err }} {
			if err := f(context.Background()); objcache.KindOf(err) != objcache.Unavailable {
				t.Errorf("%s after Close: %v", name, err)
			}
		}
		if r.Term() != 0 {
			t.Errorf("term %d after Close", r.Term())
		}
	})
}

func TestTerm_GrowsWithEveryLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := vfs.NewMem()
		var last uint64
		for range 3 {
			r, _ := start(t, fsys)
			if err := r.Read(t.Context()); err != nil {
				t.Fatal(err)
			}
			if term := r.Term(); term <= last {
				t.Fatalf("term %d after %d", term, last)
			}
			last = r.Term()
			closeReplica(t, r)
		}
	})
}

func TestLog_StaysBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := vfs.NewMem()
		r, _ := start(t, fsys)
		for i := range 3000 {
			propose(t, r, uint64(i+1), 500) // 1.5 MB in segments of 8 KiB
		}
		synctest.Wait()
		names, err := fsys.List("raft")
		if err != nil {
			t.Fatal(err)
		}
		// 128 trailing entries of 500 bytes are 8 segments, and up to 2 x 24 wait for the next cut.
		if len(names) > 24 {
			t.Errorf("%d files: %v", len(names), names)
		}
		closeReplica(t, r)
	})
}

func TestFatal_FirstFailedSyncStopsTheLogForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("disk gone")
		var fail errorfs.Toggle
		fail.Injector = errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpFileSyncData && strings.HasSuffix(op.Path, ".wal") {
				return broken
			}
			return nil
		})
		fsys := errorfs.Wrap(vfs.NewMem(), &fail)
		cfg := testConfig(fsys)
		var fatal []error
		cfg.Fatal = func(err error) { fatal = append(fatal, err) }
		j := openJournal(t, fsys)
		r, err := Open(cfg, j)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.WaitLeader(t.Context()); err != nil {
			t.Fatal(err)
		}
		propose(t, r, 1, 100)
		fail.On()
		if _, err := r.Propose(t.Context(), entry(2, 100)); objcache.KindOf(err) != objcache.Unavailable {
			t.Fatalf("err %v", err)
		}
		fail.Off()
		ctx, cancel := context.WithTimeout(t.Context(), 5e9)
		defer cancel()
		if _, err := r.Propose(ctx, entry(3, 100)); objcache.KindOf(err) != objcache.Unavailable {
			t.Errorf("proposal after a failed sync: %v", err)
		}
		if len(fatal) != 1 || !errors.Is(fatal[0], broken) || !strings.Contains(fatal[0].Error(), ".wal") {
			t.Errorf("fatal %v", fatal)
		}
		closeReplica(t, r)
		if err := checkPrefix(j.values(), 1, 1); err != nil {
			t.Error(err)
		}
	})
}
