package chunk

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/objcache/objcache"
)

func fill(t testing.TB, s *Store, key objcache.ChunkKey, tag string, off int64, p []byte) {
	t.Helper()
	if err := s.Fill(key, tag, off, p); err != nil {
		t.Fatal(err)
	}
}

// readClean returns nil when not everything is there.
func readClean(t testing.TB, s *Store, key objcache.ChunkKey, tag string, off, n int64) []byte {
	t.Helper()
	p := make([]byte, n)
	ok, err := s.ReadClean(key, tag, off, p)
	if err != nil {
		t.Fatal(err)
	}
	if !ok {
		return nil
	}
	return p
}

func TestFill_ShowsExactlyWhatIsPresent(t *testing.T) {
	s := newStore(t, Options{})
	data := content(1, 5*BlockSize+100)
	fill(t, s, someKey, "v1", BlockSize, data[BlockSize:3*BlockSize])
	if got := readClean(t, s, someKey, "v1", BlockSize+5, 70*kib); string(got) != string(data[BlockSize+5:][:70*kib]) {
		t.Error("other bytes")
	}
	for _, r := range []objcache.Range{{Off: 0, Len: 1}, {Off: 2 * BlockSize, Len: BlockSize + 1}} {
		if readClean(t, s, someKey, "v1", r.Off, r.Len) != nil {
			t.Errorf("%v was never filled", r)
		}
	}
	if readClean(t, s, someKey, "v2", BlockSize, 1) != nil {
		t.Error("another tag's bytes")
	}
	want := []objcache.Range{{Off: 0, Len: BlockSize}, {Off: 3 * BlockSize, Len: 3 * BlockSize}}
	if got := s.Missing(someKey, "v1", 10, int64(len(data))-10); !slices.Equal(got, want) {
		t.Errorf("missing %v, want %v", got, want)
	}
	for _, r := range want {
		fill(t, s, someKey, "v1", r.Off, data[r.Off:min(r.End(), int64(len(data)))])
	}
	if got := s.Missing(someKey, "v1", 0, int64(len(data))); got != nil {
		t.Errorf("missing %v", got)
	}
	if got := readClean(t, s, someKey, "v1", 0, int64(len(data))); string(got) != string(data) {
		t.Error("other bytes")
	}
	if readClean(t, s, someKey, "v1", 0, int64(len(data))+1) != nil {
		t.Error("bytes behind the end")
	}
}

func TestFill_AnotherTagReplaces(t *testing.T) {
	s := newStore(t, Options{})
	fill(t, s, someKey, "old", 0, content(1, 2*BlockSize))
	fill(t, s, someKey, "new", BlockSize, content(2, BlockSize))
	if readClean(t, s, someKey, "old", 0, 1) != nil || readClean(t, s, someKey, "new", 0, 1) != nil {
		t.Error("bytes of the old tag")
	}
	if u := s.Usage(); u.Clean != BlockSize+pageSize {
		t.Errorf("usage %+v", u)
	}
	s.DropClean(someKey)
	if u := s.Usage(); u.Clean != 0 || readClean(t, s, someKey, "new", BlockSize, 1) != nil {
		t.Errorf("usage %+v", u)
	}
	eventually(t, "the files are gone", func() bool {
		names, _ := filepath.Glob(s.dir + "/*.c")
		return len(names) == 0
	})
}

func TestClean_SurvivesARestart(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, Options{})
	if err := s.Started(); err != nil {
		t.Fatal(err)
	}
	data := content(3, 3*BlockSize+1000)
	fill(t, s, someKey, "v1", 0, data)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, dir, Options{})
	defer s.Close()
	if err := s.Started(); err != nil {
		t.Fatal(err)
	}
	if got := readClean(t, s, someKey, "v1", 0, int64(len(data))); string(got) != string(data) {
		t.Error("other bytes")
	}
	if u := s.Usage(); u.Clean != 4*BlockSize+pageSize {
		t.Errorf("usage %+v", u)
	}
}

// damage flips a bit at off of the only file with that suffix.
func damage(t testing.TB, dir, suffix string, off int64) string {
	t.Helper()
	names, err := filepath.Glob(dir + "/*" + suffix)
	if err != nil || len(names) != 1 {
		t.Fatalf("%v, %v", names, err)
	}
	f, err := os.OpenFile(names[0], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	var b [1]byte
	if _, err := f.ReadAt(b[:], off); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 4
	if _, err := f.WriteAt(b[:], off); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return names[0]
}

func TestReadClean_ARottenBlockIsAbsentAndCanBeFilledAgain(t *testing.T) {
	s := newStore(t, Options{})
	data := content(4, 4*BlockSize)
	fill(t, s, someKey, "v", 0, data)
	damage(t, s.dir, ".c", 2*BlockSize+77)
	if readClean(t, s, someKey, "v", 0, 4*BlockSize) != nil {
		t.Error("served a rotten block")
	}
	want := []objcache.Range{{Off: 2 * BlockSize, Len: BlockSize}}
	if got := s.Missing(someKey, "v", 0, 4*BlockSize); !slices.Equal(got, want) || s.CorruptClean() != 1 {
		t.Errorf("missing %v, %d corrupt", got, s.CorruptClean())
	}
	fill(t, s, someKey, "v", 2*BlockSize, data[2*BlockSize:3*BlockSize])
	if got := readClean(t, s, someKey, "v", 0, 4*BlockSize); string(got) != string(data) {
		t.Error("other bytes")
	}
}

func TestClean_ARottenTrailerDropsTheFile(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, Options{})
	if err := s.Started(); err != nil {
		t.Fatal(err)
	}
	fill(t, s, someKey, "v", 0, content(1, BlockSize))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	name := damage(t, dir, ".c", objcache.ChunkSize+50)
	s = openStore(t, dir, Options{})
	defer s.Close()
	if err := s.Started(); err != nil {
		t.Fatal(err)
	}
	if readClean(t, s, someKey, "v", 0, 1) != nil {
		t.Error("a clean file without a trailer")
	}
	eventually(t, "the file is removed", func() bool { _, err := os.Stat(name); return errors.Is(err, os.ErrNotExist) })
}

func TestEvict_BetweenTheWatermarksWhileReadersGoOn(t *testing.T) {
	budget := NewBudget(100*mib, 0)
	a, b := newStore(t, Options{Budget: budget}), newStore(t, Options{Budget: budget})
	stores := []*Store{a, b}
	data := content(1, mib)
	key := func(i int) objcache.ChunkKey { return objcache.ChunkKey{Ino: objcache.Ino(i)} }
	hot := key(0)
	fill(t, a, hot, "v", 0, data)
	h, err := a.open(a.mu.clean[hot], false) // a reader that stays on the file
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i < 400; i++ {
		if err := stores[i%2].Fill(key(i), "v", 0, data); err != nil && !errors.Is(err, objcache.NoSpace) {
			t.Fatal(err)
		}
		if dirty, clean := budget.Used(); dirty+clean > budget.mu.limit {
			t.Fatalf("used %d of %d", dirty+clean, budget.mu.limit)
		}
		readClean(t, a, hot, "v", 0, 100)
	}
	eventually(t, "usage is below the high watermark", func() bool { _, clean := budget.Used(); return clean <= budget.mu.high })
	if _, clean := budget.Used(); clean < 50*mib {
		t.Errorf("evicted down to %d", clean)
	}
	if readClean(t, a, hot, "v", 0, mib) == nil {
		t.Error("the file that was read all the time is gone")
	}
	a.DropClean(hot)
	p := make([]byte, mib)
	if _, err := h.ReadAt(p, 0); err != nil || string(p) != string(data) {
		t.Errorf("an open reader of a dropped file: %v", err)
	}
	a.handles.release(h)
}

func TestTrailer_RoundTrip(t *testing.T) {
	c := &cleanState{tag: "etag-7", short: 3, shortLen: 99}
	for _, b := range []int64{0, 3, 64, 255} {
		c.present.set(b)
		c.crcs[b] = uint32(b) + 1
	}
	page := encodeTrailer(someKey, c)
	key, got := decodeTrailer(page)
	c.taken = pageSize + 4*BlockSize
	if key != someKey || got == nil || *got != *c {
		t.Fatalf("%v %+v", key, got)
	}
	for bit := 0; bit < pageSize*8; bit += 17 {
		page[bit/8] ^= 1 << (bit % 8)
		if _, got := decodeTrailer(page); got != nil {
			t.Fatalf("flip of bit %d not seen", bit)
		}
		page[bit/8] ^= 1 << (bit % 8)
	}
}

func TestFill_OfANewChunkByManyAtOnceKeepsEveryBlock(t *testing.T) {
	s := newStore(t, Options{})
	data := content(9, 8*BlockSize)
	for i := range uint32(50) {
		key := objcache.ChunkKey{Ino: 7, Index: i}
		start := make(chan struct{})
		var wg sync.WaitGroup
		for b := range int64(8) {
			wg.Go(func() {
				<-start
				fill(t, s, key, "v1", b*BlockSize, data[b*BlockSize:(b+1)*BlockSize])
			})
		}
		close(start)
		wg.Wait()
		if got := readClean(t, s, key, "v1", 0, int64(len(data))); string(got) != string(data) {
			t.Fatalf("chunk %d: blocks are missing: %v", i, s.Missing(key, "v1", 0, int64(len(data))))
		}
	}
}
