package chunk

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/objcache/objcache"
)

// paced counts what it is asked for.
func paced(sum *int) Pace {
	return func(_ context.Context, n int) error {
		if n <= 0 || n > BlockSize {
			return objcache.Errorf(objcache.Invalid, "asked for %d bytes", n)
		}
		*sum += n
		return nil
	}
}

func TestVerify_FindsDamageOfEveryKindOfPlace(t *testing.T) {
	for _, c := range []struct {
		suffix string
		off    int64
		n      int
	}{{".c", 0, mib}, {".s", 100, 200 * kib}, {".s", 7, 5}} {
		s := newStore(t, Options{})
		pl := write(t, s, someKey, c.off, content(1, c.n))
		syncStore(t, s)
		sum := 0
		if err := s.Verify(t.Context(), someKey, pl, paced(&sum)); err != nil || sum != c.n {
			t.Errorf("%d bytes, %d paced: %v", c.n, sum, err)
		}
		name := damage(t, s.dir, c.suffix, pl.Off+int64(c.n)-1)
		if err := s.Verify(t.Context(), someKey, pl, paced(&sum)); !errors.Is(err, objcache.Corrupt) || !strings.Contains(err.Error(), filepath.Base(name)) {
			t.Errorf("%d bytes, the last one damaged: %v", c.n, err)
		}
		if err := os.Truncate(name, pl.Off); err != nil {
			t.Fatal(err)
		}
		if err := s.Verify(t.Context(), someKey, pl, paced(&sum)); !errors.Is(err, objcache.Corrupt) {
			t.Errorf("%d bytes, cut off: %v", c.n, err)
		}
	}
}

func TestScrubClean_DropsExactlyWhatRotted(t *testing.T) {
	s := newStore(t, Options{})
	data := content(4, 4*BlockSize-100)
	fill(t, s, someKey, "v", 0, data)
	sum := 0
	if read, dropped, err := s.ScrubClean(t.Context(), paced(&sum)); err != nil || dropped != 0 || read != int64(len(data)) || sum != len(data) {
		t.Errorf("%d bytes read of %d, %d dropped: %v", read, len(data), dropped, err)
	}
	damage(t, s.dir, ".c", BlockSize+77)
	damage(t, s.dir, ".c", int64(len(data))-1)
	if _, dropped, err := s.ScrubClean(t.Context(), paced(&sum)); err != nil || dropped != 2 {
		t.Errorf("%d dropped: %v", dropped, err)
	}
	want := []objcache.Range{{Off: BlockSize, Len: BlockSize}, {Off: 3 * BlockSize, Len: BlockSize}}
	if got := s.Missing(someKey, "v", 0, int64(len(data))); !slices.Equal(got, want) || s.CorruptClean() != 2 {
		t.Errorf("missing %v, %d corrupt", got, s.CorruptClean())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := s.ScrubClean(ctx, func(ctx context.Context, _ int) error { return ctx.Err() }); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
