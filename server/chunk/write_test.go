package chunk

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/objcache/objcache"
)

func TestWrite_AlignedGoesInPlaceOnceAndTheRestToTheLog(t *testing.T) {
	s := newStore(t, Options{})
	for _, c := range []struct {
		name    string
		off     int64
		n       int
		inPlace bool
	}{
		{"a block", 0, BlockSize, true},
		{"the same block again", 0, BlockSize, false},
		{"a range that overlaps it", 0, mib, false},
		{"blocks behind", BlockSize, mib, true},
		{"less than a block", 4 * mib, BlockSize - 1, false},
		{"at the middle of a block", 4*mib + 1, mib, false},
		{"an odd length", 5 * mib, BlockSize + 5, true},
		{"the rest of its last block", 5*mib + BlockSize, BlockSize, false},
		{"the chunk's end", objcache.ChunkSize - mib, mib, true},
	} {
		data := content(uint64(c.n), c.n)
		pl := write(t, s, someKey, c.off, data)
		if got := pl.Off == c.off && s.mu.files[pl.File].kind == chunkKind; got != c.inPlace {
			t.Errorf("%s: in place %v", c.name, got)
		}
		wantBytes(t, s, someKey, pl, data)
	}
	syncStore(t, s)
}

func TestWrite_RefusesWhatIsNoRangeOfAChunk(t *testing.T) {
	s := newStore(t, Options{})
	for _, c := range []struct {
		off int64
		n   int
	}{{0, 0}, {-1, 5}, {objcache.ChunkSize - 1, 2}} {
		if _, err := s.Write(context.Background(), someKey, c.off, make([]byte, c.n)); !errors.Is(err, objcache.Invalid) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestWrite_BeforeStartedIsUnavailable(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	for _, n := range []int{100, BlockSize} {
		if _, err := s.Write(context.Background(), someKey, 0, make([]byte, n)); !errors.Is(err, objcache.Unavailable) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if d, c := s.budget.Used(); d != 0 || c != 0 {
		t.Errorf("budget %d, %d after Close", d, c)
	}
}

func TestRead_PartsOfAPlace(t *testing.T) {
	s := newStore(t, Options{})
	data := content(1, 300*kib+17)
	pl := write(t, s, someKey, 1234, data)
	for _, r := range []objcache.Range{{Off: 1234, Len: 1}, {Off: 60 * kib, Len: 10 * kib}, {Off: 1234 + 300*kib, Len: 17}, {Off: 64 * kib, Len: 64 * kib}, {Off: 70 * kib, Len: 200 * kib}} {
		p := make([]byte, r.Len)
		if err := s.Read(context.Background(), someKey, pl, r.Off, p); err != nil {
			t.Fatal(err)
		}
		if string(p) != string(data[r.Off-1234:r.End()-1234]) {
			t.Errorf("%v: other bytes", r)
		}
	}
	if err := s.Read(context.Background(), someKey, pl, 1233, make([]byte, 2)); !errors.Is(err, objcache.Invalid) {
		t.Errorf("read before the place: %v", err)
	}
}

func TestWrite_ConcurrentWritersAndReaders(t *testing.T) {
	s := newStore(t, Options{})
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			key := objcache.ChunkKey{Ino: objcache.Ino(w / 2)} // two writers share a chunk
			for i := range 20 {
				data := content(uint64(w*100+i), 1+(i*7919*(w+1))%(200*kib))
				off := int64(i%8) * 2 * BlockSize
				pl, err := s.Write(context.Background(), key, off, data)
				if err == nil {
					err = s.Sync(context.Background())
				}
				if err != nil {
					t.Error(err)
					return
				}
				got, err := readBack(s, key, pl)
				if err != nil || string(got) != string(data) {
					t.Errorf("writer %d, round %d: %v", w, i, err)
				}
				if i%3 == 0 {
					s.Free(key, pl, uint64(i))
					s.Durable(uint64(i))
				}
			}
		})
	}
	wg.Wait()
}

func TestWrite_OfManyAtOnceOneGoesInPlace(t *testing.T) {
	s := newStore(t, Options{})
	for i := range 40 {
		key := objcache.ChunkKey{Ino: objcache.Ino(i)}
		places, data := make([]Place, 8), make([][]byte, 8)
		begin := make(chan struct{})
		var wg sync.WaitGroup
		for w := range places {
			data[w] = content(uint64(i*8+w), BlockSize)
			wg.Go(func() {
				<-begin
				var err error
				if places[w], err = s.Write(context.Background(), key, 0, data[w]); err != nil {
					t.Error(err)
				}
			})
		}
		close(begin)
		wg.Wait()
		seen := map[[2]int64]bool{}
		for w, pl := range places {
			at := [2]int64{int64(pl.File), pl.Off}
			if seen[at] {
				t.Fatalf("two writes at %v", at)
			}
			seen[at] = true
			wantBytes(t, s, key, pl, data[w])
		}
	}
}

func TestWrite_ACancelledWaitForEvictionIsInterrupted(t *testing.T) {
	budget := NewBudget(20*mib, 0)
	s := newStore(t, Options{Budget: budget, SegmentSize: mib})
	for i := range 18 { // below the high watermark, and held by metadata, so that nothing can be evicted
		key := objcache.ChunkKey{Ino: objcache.Ino(i)}
		pl := write(t, s, key, 0, content(1, mib-BlockSize))
		if err := s.Adopt(key, "v", []Piece{whole(pl)}, pl.Len); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		_, err := s.Write(ctx, someKey, 0, make([]byte, 3*mib))
		done <- err
	}()
	cancel()
	if err := <-done; !errors.Is(err, objcache.Interrupted) {
		t.Errorf("err %v", err)
	}
}
