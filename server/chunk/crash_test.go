package chunk

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/objcache/objcache"
)

// known is a place with the bytes that belong there, and how sure the caller may be of them.
type known struct {
	key    objcache.ChunkKey
	place  Place
	data   []byte
	synced bool // a Sync that began after the write has returned
	freed  bool // and the metadata that says so is durable
}

// history is what a caller of the store knows; images are the disk with the history at that moment.
type history struct {
	places []known
	images []image
}

type image struct {
	disk   *vfs.MemFS
	places []known
}

func TestCrash_SyncedBytesAreThereAndNoOthersAreServed(t *testing.T) {
	mem := vfs.NewCrashableMem()
	rng := rand.New(rand.NewPCG(7, 7))
	var h history
	// The store's syncs and renames happen in its own goroutines, but only while this test waits for them or between its steps, so
	// images are taken here, around every step, and inside the rounds of Sync.
	inRound := make(chan struct{}, 1)
	fsys := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpFileSync, errorfs.OpFileSyncData:
			select {
			case inRound <- struct{}{}: // the test is inside Sync and changes nothing
				h.images = append(h.images, image{mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rng}), append([]known(nil), h.places...)})
				<-inRound
			default:
			}
		}
		return nil
	}))
	opt := Options{FS: NewFS(fsys), SegmentSize: 512 * kib, Budget: NewBudget(1<<30, 0)}
	inRound <- struct{}{}
	s := openStore(t, "chunks", opt)
	if err := s.Started(); err != nil {
		t.Fatal(err)
	}
	snap := func() {
		for _, percent := range []int{0, 50} {
			h.images = append(h.images, image{mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng}), append([]known(nil), h.places...)})
		}
	}
	for step := range 60 {
		key := objcache.ChunkKey{Ino: objcache.Ino(1 + rng.IntN(2))}
		switch n := rng.IntN(10); {
		case n < 6:
			off, size := int64(rng.IntN(8))*BlockSize, BlockSize
			if n < 4 {
				off, size = off+int64(rng.IntN(5000)), 1+rng.IntN(100*kib)
			}
			data := content(uint64(step), size)
			h.places = append(h.places, known{key: key, place: write(t, s, key, off, data), data: data})
		case n < 8:
			<-inRound
			syncStore(t, s)
			inRound <- struct{}{}
			for i := range h.places {
				h.places[i].synced = true
			}
		default:
			for i := range h.places {
				if !h.places[i].freed && rng.IntN(2) == 0 {
					s.Free(h.places[i].key, h.places[i].place, uint64(step))
					h.places[i].freed = true
				}
			}
			s.Durable(uint64(step))
		}
		snap()
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d images, %d places", len(h.images), len(h.places))
	for _, im := range h.images {
		checkImage(t, im)
	}
}

// checkImage opens what a crash left: synced places hold their bytes; others hold them too or are Corrupt.
func checkImage(t *testing.T, im image) {
	t.Helper()
	s := openStore(t, "chunks", Options{FS: NewFS(im.disk), SegmentSize: 512 * kib})
	for _, k := range im.places {
		if k.synced && !k.freed {
			s.Retain(k.key, k.place)
		}
	}
	if err := s.Started(); err != nil {
		t.Fatal(err)
	}
	// New writes must not touch what was retained.
	for i := range 4 {
		write(t, s, objcache.ChunkKey{Ino: 1}, int64(i)*3*BlockSize+int64(i%2), content(999, BlockSize))
	}
	for _, k := range im.places {
		got, err := readBack(s, k.key, k.place)
		switch {
		case err == nil && string(got) != string(k.data):
			t.Fatalf("place %+v: other bytes were served", k.place)
		case err != nil && k.synced && !k.freed:
			t.Fatalf("synced place: %v", err)
		case err != nil && !errors.Is(err, objcache.Corrupt):
			t.Fatalf("lost place: %v", err)
		}
	}
	if err := s.Sync(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
