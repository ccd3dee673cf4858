package chunk

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/objcache/objcache"
)

// closed is a store that was closed, with a dirty file, extents in a segment, and a clean file.
func closed(t *testing.T) (dir string, held []Held) {
	t.Helper()
	dir = t.TempDir()
	s := openStore(t, dir, Options{})
	if err := s.Started(); err != nil {
		t.Fatal(err)
	}
	for i, w := range []struct{ off, n int64 }{{0, mib}, {100, 200 * kib}, {7, 5}} {
		held = append(held, Held{ID: uint64(i + 1), Key: someKey, Place: write(t, s, someKey, w.off, content(uint64(i), int(w.n)))})
	}
	fill(t, s, objcache.ChunkKey{Ino: 5}, "v", 0, content(9, 2*BlockSize))
	syncStore(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, held
}

func looked(t *testing.T, dir string, held []Held, verify bool) Inspection {
	t.Helper()
	in, err := Inspect(nil, dir, held, verify)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func TestInspect_FindsNothingInASoundStore(t *testing.T) {
	dir, held := closed(t)
	in := looked(t, dir, held, true)
	if len(in.Rotten)+len(in.Unnamed)+len(in.Damages) > 0 || in.Read != mib+200*kib+5 {
		t.Errorf("%+v", in)
	}
}

func TestInspect_NamesWhatIsLost(t *testing.T) {
	for _, c := range []struct {
		name   string
		verify bool
		plant  func(t *testing.T, dir string, held []Held)
		rotten map[uint64]string
	}{
		{"a flipped bit, looked at by length only", false, func(t *testing.T, dir string, held []Held) { damage(t, dir, ".s", held[1].Place.Off+100) }, nil},
		{"a flipped bit", true, func(t *testing.T, dir string, held []Held) { damage(t, dir, ".s", held[1].Place.Off+100) },
			map[uint64]string{2: "65436 bytes at offset 50331748 are not"}},
		{"a file that is gone", false, func(t *testing.T, dir string, held []Held) {
			if err := os.Remove(filepath.Join(dir, fileName(held[0].Place.File, chunkKind))); err != nil {
				t.Fatal(err)
			}
		}, map[uint64]string{1: "1048576 bytes at offset 50331648 are gone"}},
		{"a file that is cut", false, func(t *testing.T, dir string, held []Held) {
			if err := os.Truncate(filepath.Join(dir, fileName(held[2].Place.File, segmentKind)), held[2].Place.Off+2); err != nil {
				t.Fatal(err)
			}
		}, map[uint64]string{3: "5 bytes at offset 50331655 are gone"}},
	} {
		dir, held := closed(t)
		c.plant(t, dir, held)
		in := looked(t, dir, held, c.verify)
		if len(in.Rotten) != len(c.rotten) {
			t.Errorf("%s: %v", c.name, in.Rotten)
		}
		for id, words := range c.rotten {
			if !strings.Contains(in.Rotten[id], words) {
				t.Errorf("%s: %q, want %q", c.name, in.Rotten[id], words)
			}
		}
	}
}

func TestInspect_NamesFilesThatHoldNothing(t *testing.T) {
	dir, held := closed(t)
	for _, n := range []string{"notes.txt", "next.tmp"} {
		if err := os.WriteFile(filepath.Join(dir, n), []byte("hello"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	in := looked(t, dir, held[:1], false)
	var got []string
	for _, u := range in.Unnamed {
		if u.Foreign {
			got = append(got, filepath.Base(u.Name))
		} else {
			got = append(got, "ours "+filepath.Ext(u.Name))
		}
	}
	if want := []string{"notes.txt", "ours .s", "ours .tmp", "sub"}; !slices.Equal(sorted(got), want) {
		t.Errorf("%v, want %v", sorted(got), want)
	}
}

func sorted(s []string) []string { slices.Sort(s); return s }

func TestInspect_NamesADamagedCounter(t *testing.T) {
	dir, held := closed(t)
	if err := os.WriteFile(filepath.Join(dir, idName), []byte("nonsense 12 bytes"), 0o600); err != nil {
		t.Fatal(err)
	}
	if in := looked(t, dir, held, false); len(in.Damages) != 1 || !strings.Contains(in.Damages[0], idName) {
		t.Errorf("%+v", in)
	}
}
