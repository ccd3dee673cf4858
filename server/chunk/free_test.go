package chunk

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/objcache/objcache"
)

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

func TestFree_NothingGoesBeforeItsIndexIsDurable(t *testing.T) {
	s := newStore(t, Options{})
	data := content(1, mib)
	a := write(t, s, someKey, 0, data)
	b := write(t, s, someKey, 2*mib, data)
	name := s.mu.files[a.File].name(s.dir)
	s.Free(someKey, a, 10)
	s.Free(someKey, b, 11)
	s.Durable(10)
	wantBytes(t, s, someKey, b, data)
	if !exists(name) {
		t.Fatal("the file went with a place that was not dead")
	}
	s.Durable(11)
	eventually(t, "the file is removed", func() bool { return !exists(name) })
	if u := s.Usage(); u.Dirty != 0 {
		t.Errorf("usage %+v", u)
	}
	eventually(t, "the budget is free", func() bool { d, _ := s.budget.Used(); return d == 0 })
	if _, err := readBack(s, someKey, a); !errors.Is(err, objcache.Corrupt) {
		t.Errorf("read of a dead place: %v", err)
	}
}

func TestFree_SegmentsAreRecycledUnderANewNumber(t *testing.T) {
	s := newStore(t, Options{SegmentSize: mib})
	var places []Place
	for range 4 * 8 { // four segments of eight writes
		places = append(places, write(t, s, someKey, 1, content(1, 128*kib-pageSize)))
	}
	used := s.Usage().Segments
	first := s.mu.files[places[0].File].name(s.dir)
	for _, pl := range places {
		s.Free(someKey, pl, 5)
	}
	s.Durable(5)
	eventually(t, "the first segment is gone", func() bool { return !exists(first) })
	eventually(t, "two spares", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.mu.spares) == 2 })
	old := map[uint64]bool{}
	for _, pl := range places {
		old[pl.File] = true
	}
	fresh := 0
	for range 2 * 8 {
		data := content(9, 128*kib-pageSize)
		pl := write(t, s, someKey, 1, data)
		wantBytes(t, s, someKey, pl, data)
		if !old[pl.File] {
			fresh++
		}
	}
	syncStore(t, s)
	if fresh < 8 {
		t.Errorf("only %d writes went to recycled segments", fresh)
	}
	if got := s.Usage().Segments; got > used {
		t.Errorf("segments grew from %d to %d", used, got)
	}
}

func TestStarted_KeepsWhatIsRetainedAndDeletesTheRest(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, Options{})
	if err := s.Started(); err != nil {
		t.Fatal(err)
	}
	other := objcache.ChunkKey{Ino: 8}
	inPlace, logged := content(1, mib), content(2, 5000)
	a, b := write(t, s, someKey, 0, inPlace), write(t, s, someKey, 33, logged)
	gone := write(t, s, other, 0, inPlace)
	syncStore(t, s)
	name := s.mu.files[gone.File].name(dir)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, dir, Options{})
	defer s.Close()
	s.Retain(someKey, a)
	s.Retain(someKey, b)
	s.Retain(someKey, b)
	if err := s.Started(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the unretained file is removed", func() bool { return !exists(name) })
	wantBytes(t, s, someKey, a, inPlace)
	wantBytes(t, s, someKey, b, logged)
	if u := s.Usage(); u.Dirty != mib || u.Staged != 5000 {
		t.Errorf("usage %+v", u)
	}
	// The segment goes on behind what is live, the dirty file beside it.
	c := write(t, s, someKey, 7, content(3, 6000))
	d := write(t, s, someKey, 2*mib, content(4, mib))
	if c.File != b.File || c.Off < b.Off+b.Len || d.File != a.File {
		t.Errorf("places %+v %+v after %+v %+v", c, d, a, b)
	}
	wantBytes(t, s, someKey, b, logged)
	wantBytes(t, s, someKey, a, inPlace)
}

func TestRead_DamageIsCorruptAndNamed(t *testing.T) {
	for _, c := range []struct {
		suffix string
		off    int64
		n      int
	}{{".c", 0, mib}, {".s", 100, 200 * kib}} {
		for _, cut := range []bool{false, true} {
			s := newStore(t, Options{})
			pl := write(t, s, someKey, c.off, content(1, c.n))
			syncStore(t, s)
			at := pl.Off + 3*BlockSize/2
			name := damage(t, s.dir, c.suffix, at)
			if cut {
				if err := os.Truncate(name, at); err != nil {
					t.Fatal(err)
				}
			}
			_, err := readBack(s, someKey, pl)
			if !errors.Is(err, objcache.Corrupt) || !strings.Contains(err.Error(), filepath.Base(name)) || !strings.Contains(err.Error(), "offset") {
				t.Errorf("%s, cut %v: %v", c.suffix, cut, err)
			}
			if err := s.Read(context.Background(), someKey, pl, pl.Start, make([]byte, 100)); err != nil {
				t.Errorf("a block before the damage: %v", err)
			}
		}
	}
}

func TestWrite_FullDiskIsNoSpaceAndTheStoreGoesOn(t *testing.T) {
	fs := &faultFS{FS: osFS{}}
	s := newStore(t, Options{FS: fs})
	kept := write(t, s, someKey, 0, content(1, mib))
	write(t, s, someKey, 5, content(1, 100))
	before := s.Usage()
	fs.full.Store(true)
	for off, n := range map[int64]int{2 * mib: mib, 9: 1000} {
		if _, err := s.Write(context.Background(), someKey, off, make([]byte, n)); !errors.Is(err, objcache.NoSpace) {
			t.Errorf("write of %d: %v", n, err)
		}
	}
	if err := s.Fill(objcache.ChunkKey{Ino: 5}, "v", 0, make([]byte, BlockSize)); !errors.Is(err, objcache.NoSpace) {
		t.Errorf("fill: %v", err)
	}
	fs.full.Store(false)
	s.budget.Disk(1 << 40)
	if u := s.Usage(); u.Dirty != before.Dirty || u.Staged != before.Staged {
		t.Errorf("usage %+v, before %+v", u, before)
	}
	again := write(t, s, someKey, 2*mib, content(2, mib))
	syncStore(t, s)
	wantBytes(t, s, someKey, kept, content(1, mib))
	wantBytes(t, s, someKey, again, content(2, mib))
	fill(t, s, objcache.ChunkKey{Ino: 5}, "v", 0, content(3, BlockSize))
}

func TestSync_AFailureEndsAllAcknowledgements(t *testing.T) {
	fs := &faultFS{FS: osFS{}}
	s := newStore(t, Options{FS: fs})
	pl := write(t, s, someKey, 0, content(1, mib))
	fs.badSync.Store(true)
	if err := s.Sync(context.Background()); !errors.Is(err, objcache.IO) {
		t.Fatalf("sync: %v", err)
	}
	fs.badSync.Store(false)
	if err := s.Sync(context.Background()); !errors.Is(err, objcache.IO) {
		t.Errorf("the next sync: %v", err)
	}
	if _, err := s.Write(context.Background(), someKey, mib, make([]byte, mib)); !errors.Is(err, objcache.IO) {
		t.Errorf("write: %v", err)
	}
	wantBytes(t, s, someKey, pl, content(1, mib))
}

func TestBudget_DirtyStopsAtTheReserveAndEvictsCleanFirst(t *testing.T) {
	budget := NewBudget(40*mib, 0)
	s := newStore(t, Options{Budget: budget, SegmentSize: mib})
	data := content(1, mib)
	for i := range 36 {
		if err := s.Fill(objcache.ChunkKey{Ino: objcache.Ino(i)}, "v", 0, data); err != nil && !errors.Is(err, objcache.NoSpace) {
			t.Fatal(err)
		}
	}
	var places []Place
	for i := 0; ; i++ {
		key := objcache.ChunkKey{Ino: 1000, Index: uint32(i / 16)}
		pl, err := s.Write(context.Background(), key, int64(i%16)*mib, data)
		if err != nil {
			if !errors.Is(err, objcache.NoSpace) {
				t.Fatal(err)
			}
			break
		}
		places = append(places, pl)
	}
	if n := len(places); n != 38 { // 95 % of 40
		t.Errorf("%d MiB were accepted", n)
	}
	dirty, clean := budget.Used()
	if dirty+clean > budget.mu.limit {
		t.Errorf("used %d + %d", dirty, clean)
	}
	for i, pl := range places {
		s.Free(objcache.ChunkKey{Ino: 1000, Index: uint32(i / 16)}, pl, 1)
	}
	s.Durable(1)
	eventually(t, "room again", func() bool { d, _ := budget.Used(); return d == 0 })
	write(t, s, someKey, 0, data)
}

func TestBudget_ADiskThatOthersFillHasCleanBytesGo(t *testing.T) {
	budget := NewBudget(100*mib, 0)
	s := newStore(t, Options{Budget: budget, SegmentSize: mib})
	for i := range 40 {
		if err := s.Fill(objcache.ChunkKey{Ino: objcache.Ino(i)}, "v", 0, make([]byte, mib)); err != nil {
			t.Fatal(err)
		}
	}
	budget.Disk(0)
	eventually(t, "clean bytes have gone", func() bool {
		_, clean := budget.Used()
		return clean <= 33*mib
	})
	budget.Disk(1 << 40)
	for i := range 40 {
		if err := s.Fill(objcache.ChunkKey{Ino: objcache.Ino(100 + i)}, "v", 0, make([]byte, mib)); err != nil {
			t.Fatal("after the disk had room again:", err)
		}
	}
}
