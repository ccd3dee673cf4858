package replica

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/objcache/objcache"
)

// filled returns a disk with n acknowledged entries that no snapshot covers.
func filled(t *testing.T, n int) *vfs.MemFS {
	fsys := vfs.NewCrashableMem()
	cfg := testConfig(fsys)
	cfg.SnapshotEntries = 1 << 30
	j := openJournal(t, fsys)
	r, err := Open(cfg, j)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.WaitLeader(context.Background()); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		propose(t, r, uint64(i+1), 700)
	}
	closeReplica(t, r)
	return fsys
}

func logFiles(t *testing.T, fsys vfs.FS) []string {
	t.Helper()
	names, err := (&walFS{fs: fsys}).ListDir("raft")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, n := range names {
		if strings.HasSuffix(n, ".wal") {
			out = append(out, "raft/"+n)
		}
	}
	return out
}

// rewrite replaces a file's content in a clone of the disk.
func rewrite(t *testing.T, disk *vfs.MemFS, path string, change func([]byte) []byte) vfs.FS {
	t.Helper()
	fsys := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 0})
	raw, err := readFile(fsys, path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := fsys.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(change(raw)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return fsys
}

func wantCorrupt(t *testing.T, fsys vfs.FS, path, what string) {
	t.Helper()
	r, err := Open(testConfig(fsys), openJournal(t, fsys))
	if err == nil {
		_ = r.Close()
	}
	if !errors.Is(err, objcache.Corrupt) || !strings.Contains(err.Error(), path) {
		t.Errorf("%s of %s: %v", what, path, err)
	}
}

// wantDamage wants of Inspect what Open says.
func wantDamage(t *testing.T, fsys vfs.FS, path, what string) {
	t.Helper()
	in, err := Inspect(fsys, "raft", 0, func(uint64, uint64, []byte) {})
	if err != nil || len(in.Damages) == 0 || !strings.Contains(in.Damages[0], path) {
		t.Errorf("%s of %s: %+v, %v", what, path, in, err)
	}
	wantCorrupt(t, fsys, path, what)
}

func TestOpen_NamesEveryFlippedBit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := filled(t, 30)
		files := logFiles(t, disk)
		if len(files) < 3 {
			t.Fatalf("files %v", files)
		}
		for _, path := range append(files, "raft/"+metaName) {
			raw, err := readFile(disk, path)
			if err != nil {
				t.Fatal(err)
			}
			end := (&scanned{raw: raw}).lastByte()
			for bit := int64(0); bit < end*8; bit += 61 {
				fsys := rewrite(t, disk, path, func(b []byte) []byte { b[bit/8] ^= 1 << (bit % 8); return b })
				wantDamage(t, fsys, path, "flip")
			}
		}
	})
}

func TestOpen_NamesCutAndMissingFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := filled(t, 30)
		for _, path := range append(logFiles(t, disk), "raft/"+metaName) {
			for _, keep := range []float64{0, 0.1, 0.5, 0.99} {
				fsys := rewrite(t, disk, path, func(b []byte) []byte { return b[:int(float64(len(b))*keep)] })
				wantDamage(t, fsys, path, "cut")
			}
			fsys := disk.CrashClone(vfs.CrashCloneCfg{})
			if err := fsys.Remove(path); err != nil {
				t.Fatal(err)
			}
			wantDamage(t, fsys, path, "removal")
		}
	})
}

func TestOpen_RefusesAStateThatLostWhatTheLogDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := vfs.NewCrashableMem()
		r, _ := start(t, fsys)
		for i := range 100 {
			propose(t, r, uint64(i+1), 100)
		}
		synctest.Wait()
		closeReplica(t, r)
		if err := fsys.Remove("state/journal"); err != nil {
			t.Fatal(err)
		}
		wantCorrupt(t, fsys, "raft/"+snapshotName, "an emptied state")
	})
}

func TestScan_TornBatchIsNotDamage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := filled(t, 30)
		files := logFiles(t, disk)
		path := files[len(files)-1]
		for _, tear := range []int{8, 100, 512, 700} {
			// The end of the last batch never reached the disk: entry 30 was not acknowledged.
			fsys := rewrite(t, disk, path, func(b []byte) []byte {
				end := int((&scanned{raw: b}).lastByte())
				clear(b[end-tear : end])
				return b
			})
			if k := reopen(t, fsys, 29, 29, "tear"); k != 29 {
				t.Errorf("%d entries", k)
			}
		}
	})
}

func TestRecoverTail_ClearsATornBatchSoThatItsRestMeansNothingLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tested := 0
		for n := 31; n < 36; n++ {
			disk := filled(t, n)
			r, _ := start(t, disk)
			propose(t, r, uint64(n+1), 3000)
			closeReplica(t, r)
			files := logFiles(t, disk)
			path := files[len(files)-1]
			raw, err := readFile(disk, path)
			if err != nil {
				t.Fatal(err)
			}
			end := int((&scanned{raw: raw}).lastByte())
			if end < 3200 { // the entry filled up its segment, so this one is empty
				continue
			}
			tested++
			// The batch of the last entry lacks sectors but has its commit frame: a power loss wrote pages out of order.
			fsys := rewrite(t, disk, path, func(b []byte) []byte { clear(b[end-3000 : end-2000]); return b })
			r, j := start(t, fsys)
			if err := checkPrefix(j.values(), n, n); err != nil {
				t.Fatal(err)
			}
			propose(t, r, uint64(n+1), 1200) // ends within what the torn batch left
			closeReplica(t, r)
			reopen(t, fsys, n+1, n+1, "tear")
		}
		if tested == 0 {
			t.Fatal("no entry was the last of a segment's tail")
		}
	})
}
