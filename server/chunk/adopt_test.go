package chunk

import (
	"testing"

	"github.com/objcache/objcache"
)

func whole(pl Place) Piece { return Piece{pl, pl.Start, pl.Len} }

func TestAdopt_AWholeDirtyFileBecomesTheCleanOne(t *testing.T) {
	s := newStore(t, Options{Budget: NewBudget(200*mib, 0)})
	data := content(1, 2*mib+1000)
	a := write(t, s, someKey, 0, data[:mib])
	b := write(t, s, someKey, mib, data[mib:])
	if err := s.Adopt(someKey, "v1", []Piece{whole(b), whole(a)}, int64(len(data))); err != nil {
		t.Fatal(err)
	}
	if f := s.mu.clean[someKey]; f == nil || f.id != a.File {
		t.Fatal("the file was copied")
	}
	if got := readClean(t, s, someKey, "v1", 0, int64(len(data))); string(got) != string(data) {
		t.Error("other bytes")
	}
	wantBytes(t, s, someKey, a, data[:mib])
	if u := s.Usage(); u.Dirty != 0 || u.Clean != 33*BlockSize+pageSize {
		t.Errorf("usage %+v", u)
	}
	// The next dirty write must not touch it, and eviction must wait for the metadata.
	c := write(t, s, someKey, 0, content(2, mib))
	if c.File == a.File {
		t.Error("a dirty write went into the clean file")
	}
	if v := s.budget.victim(); v != nil {
		t.Error("eviction would take it")
	}
	s.evict(s.mu.clean[someKey])
	wantBytes(t, s, someKey, b, data[mib:])
	s.Free(someKey, a, 4)
	s.Free(someKey, b, 4)
	s.Durable(4)
	if readClean(t, s, someKey, "v1", 0, 10) == nil {
		t.Error("the clean content went with its places")
	}
	v := s.budget.victim()
	if v == nil {
		t.Fatal("eviction does not find it")
	}
	s.evict(v.file)
	if readClean(t, s, someKey, "v1", 0, 10) != nil {
		t.Error("not evictable")
	}
	if d, cl := s.budget.Used(); d != mib || cl != 0 {
		t.Errorf("budget %d, %d", d, cl)
	}
}

func TestAdopt_MixedPlacesAreCopied(t *testing.T) {
	s := newStore(t, Options{})
	data := content(1, 10*BlockSize+100)
	a := write(t, s, someKey, 0, data[:6*BlockSize])
	patch := content(2, 70*kib)
	b := write(t, s, someKey, BlockSize+10, patch) // over a part of a
	c := write(t, s, someKey, 8*BlockSize, data[8*BlockSize:])
	copy(data[BlockSize+10:], patch)
	end := b.Start + b.Len
	pieces := []Piece{{a, 0, BlockSize + 10}, whole(b), {a, end, 6*BlockSize - end}, whole(c)}
	if err := s.Adopt(someKey, "v1", pieces, int64(len(data))); err != nil {
		t.Fatal(err)
	}
	if got := readClean(t, s, someKey, "v1", 0, 6*BlockSize); string(got) != string(data[:6*BlockSize]) {
		t.Error("other bytes before the gap")
	}
	if got := readClean(t, s, someKey, "v1", 8*BlockSize, 2*BlockSize+100); string(got) != string(data[8*BlockSize:]) {
		t.Error("other bytes behind the gap")
	}
	if got := s.Missing(someKey, "v1", 0, int64(len(data))); len(got) != 1 || got[0] != (objcache.Range{Off: 6 * BlockSize, Len: 2 * BlockSize}) {
		t.Errorf("missing %v", got)
	}
	wantBytes(t, s, someKey, b, patch)
}

func TestAdopt_ARestartBeforeTheMetadataKeepsThePlaces(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, Options{})
	if err := s.Started(); err != nil {
		t.Fatal(err)
	}
	data := content(1, mib)
	a := write(t, s, someKey, 0, data)
	syncStore(t, s)
	if err := s.Adopt(someKey, "v1", []Piece{whole(a)}, mib); err != nil {
		t.Fatal(err)
	}
	s.Free(someKey, a, 3) // never durable
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, dir, Options{})
	defer s.Close()
	s.Retain(someKey, a)
	if err := s.Started(); err != nil {
		t.Fatal(err)
	}
	wantBytes(t, s, someKey, a, data)
	fill(t, s, someKey, "v2", 0, content(2, BlockSize)) // replaces v1, whose bytes metadata still names
	wantBytes(t, s, someKey, a, data)
	if b := write(t, s, someKey, 0, data); b.File == a.File {
		t.Error("a dirty write went into the adopted file")
	}
}
