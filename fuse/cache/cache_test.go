package cache

import (
	"bytes"
	"errors"
	"fmt"
	"github.com/objcache/objcache/test/wait"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/objcache/objcache"
)

func open(t *testing.T, dir string, budget int64) (*Store, []Leftover) {
	t.Helper()
	s, left, err := Open(Config{Dir: dir, Bytes: budget, Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	t.Cleanup(func() { s.Close() })
	return s, left
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func noise(n int, seed uint64) []byte {
	p := make([]byte, n)
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range p {
		p[i] = byte(r.Uint32())
	}
	return p
}

var aTime = time.Unix(1_700_000_000, 5)

func TestRanges_AgreeWithAPlainModel(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var s Ranges
		var model [200]bool
		for range 30 {
			x := objcache.Range{Off: r.Int64N(150), Len: r.Int64N(50)}
			add := r.IntN(3) > 0
			if add {
				s = s.Add(x)
			} else {
				s = s.Remove(x)
			}
			for i := x.Off; i < x.End(); i++ {
				model[i] = add
			}
			check(t, s, model[:], objcache.Range{Off: r.Int64N(150), Len: 1 + r.Int64N(49)})
		}
	}
}

func check(t *testing.T, s Ranges, model []bool, ask objcache.Range) {
	t.Helper()
	var inside, outside int64
	for i := ask.Off; i < ask.End(); i++ {
		if model[i] {
			inside++
		} else {
			outside++
		}
	}
	if s.Within(ask).Bytes() != inside || s.Outside(ask).Bytes() != outside || s.Covers(ask) != (outside == 0) {
		t.Fatalf("%v asked for %v: %v in, %v out, covers %v; model %d in, %d out", s, ask, s.Within(ask), s.Outside(ask), s.Covers(ask), inside, outside)
	}
	for i := 1; i < len(s); i++ {
		if s[i-1].End() >= s[i].Off {
			t.Fatalf("%v is not sorted and disjoint", s)
		}
	}
}

func TestFile_ReadsWhatWasFilledAndWrittenWhateverTheOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for round := range 30 {
		s, _ := open(t, t.TempDir(), 1<<30)
		base := noise(int(r.Int64N(5*BlockSize)), uint64(round))
		f := s.Create(7, 1, int64(len(base)))
		want := append([]byte(nil), base...)
		for range 40 {
			switch r.IntN(4) {
			case 0, 1:
				p := noise(1+int(r.Int64N(2*BlockSize)), r.Uint64())
				off := r.Int64N(int64(len(want)) + 1000)
				must(t, f.Write(p, off, aTime))
				if need := int(off) + len(p); need > len(want) {
					want = append(want, make([]byte, need-len(want))...)
				}
				copy(want[off:], p)
			case 2:
				if missing := f.Missing(objcache.Range{Len: f.Size()}); len(missing) > 0 {
					m := missing[r.IntN(len(missing))]
					p := make([]byte, m.Len)
					if m.Off < int64(len(base)) {
						copy(p, base[m.Off:])
					}
					must(t, f.Fill(1, m.Off, p))
				}
			case 3:
				for _, d := range f.Pending().Dirty {
					f.Staged(d)
					break
				}
			}
			verify(t, f, want, base)
		}
		s.Release(f)
	}
}

// verify reads every part that is present and compares it with the model.
func verify(t *testing.T, f *File, want, base []byte) {
	t.Helper()
	if f.Size() != int64(len(want)) {
		t.Fatalf("size %d, want %d", f.Size(), len(want))
	}
	got := make([]byte, len(want))
	n, err := f.ReadAt(got, 0)
	var absent *AbsentError
	if errors.As(err, &absent) {
		return
	}
	must(t, err)
	if n != len(want) || !bytes.Equal(got, want) {
		t.Fatalf("read %d bytes that differ", n)
	}
}

func TestFile_RottenCleanBlockIsFoundAndDropped(t *testing.T) {
	s, _ := open(t, t.TempDir(), 1<<30)
	f := s.Create(7, 1, 3*BlockSize)
	defer s.Release(f)
	must(t, f.Fill(1, 0, noise(3*BlockSize, 1)))
	_, err := f.disk.write([]byte{0xff, 0xfe}, BlockSize+5)
	must(t, err)
	if _, err := f.ReadAt(make([]byte, 10), BlockSize+100); !errors.Is(err, objcache.Corrupt) {
		t.Errorf("read of a rotten block: %v", err)
	}
	if m := f.Missing(objcache.Range{Len: f.Size()}); len(m) != 1 || m[0].Off != BlockSize {
		t.Errorf("missing after that: %v", m)
	}
	if _, err := f.ReadAt(make([]byte, BlockSize), 0); err != nil {
		t.Errorf("read of a good block: %v", err)
	}
}

func TestFile_BytesOfAnotherVersionAreNotFilledIn(t *testing.T) {
	s, _ := open(t, t.TempDir(), 1<<30)
	f := s.Create(7, 2, BlockSize)
	defer s.Release(f)
	must(t, f.Fill(1, 0, noise(BlockSize, 1)))
	if f.Complete() {
		t.Error("bytes of version 1 were taken for version 2")
	}
}

func TestStore_EvictsTheFileUsedLongestAgoButNoneThatIsHeldOrDirty(t *testing.T) {
	s, _ := open(t, t.TempDir(), 10*BlockSize)
	fill := func(ino objcache.Ino, keep bool) *File {
		f := s.Create(ino, 1, 4*BlockSize)
		must(t, f.Fill(1, 0, noise(4*BlockSize, uint64(ino))))
		if !keep {
			s.Release(f)
		}
		return f
	}
	held := fill(1, true)
	dirty := fill(2, true)
	must(t, dirty.Write([]byte("x"), 0, aTime))
	s.Release(dirty)
	fill(3, false)
	fill(4, false)
	wait.Until(t, 5*time.Second, "eviction down to ten blocks", func() bool { return s.Usage().Bytes <= 10*BlockSize })
	for ino, want := range map[objcache.Ino]bool{1: true, 2: true, 3: false} {
		f := s.Acquire(ino)
		if (f != nil) != want {
			t.Errorf("inode %d cached: %v", ino, f != nil)
		}
		if f != nil {
			s.Release(f)
		}
	}
	s.Release(held)
}

func TestOpen_ReturnsWhatWasNotCommittedAndNothingElse(t *testing.T) {
	dir := t.TempDir()
	s, _ := open(t, dir, 1<<30)
	clean := s.Create(1, 1, BlockSize)
	must(t, clean.Fill(1, 0, noise(BlockSize, 1)))
	committed := s.Create(2, 1, 0)
	must(t, committed.Write([]byte("done"), 0, aTime))
	committed.Commit(2, 4)
	dirty := s.Create(3, 9, 50)
	dirty.SetPlace(1, "name")
	want := make([]byte, 2000*20)
	for i := range 2000 { // far more ranges than a fresh sidecar holds
		p := noise(10, uint64(i))
		copy(want[i*20:], p)
		must(t, dirty.Write(p, int64(i*20), aTime))
	}
	dirty.Staged(objcache.Range{Off: 0, Len: 100})
	// A killed process runs no Close: let go of the lock only.
	must(t, s.lock.Close())

	s2, left := open(t, dir, 1<<30)
	if len(left) != 1 {
		t.Fatalf("%d leftovers", len(left))
	}
	l := left[0]
	if l.File.Ino() != 3 || l.Base != 9 || l.Dir != 1 || l.Name != "name" || !l.Mtime.Equal(aTime) || l.Size != 1999*20+10 || len(l.Ranges) != 2000 {
		t.Errorf("leftover %d base %d dir %d name %q mtime %v size %d ranges %d", l.File.Ino(), l.Base, l.Dir, l.Name, l.Mtime, l.Size, len(l.Ranges))
	}
	for _, r := range l.Ranges {
		got := make([]byte, r.Len)
		_, err := l.File.Raw().ReadAt(got, r.Off)
		must(t, err)
		if !bytes.Equal(got, want[r.Off:r.End()]) {
			t.Fatalf("range %v differs", r)
		}
	}
	s2.Remove(l.File)
	s2.Release(l.File)
	names, err := os.ReadDir(filepath.Join(dir, "files"))
	must(t, err)
	if len(names) != 0 {
		t.Errorf("%d files are left", len(names))
	}
}

func TestOpen_WritesInSharedSidecarsOutliveTheProcess(t *testing.T) {
	dir := t.TempDir()
	s, _ := open(t, dir, 1<<30)
	const files = 3 * slotsOfFile / 2
	want := map[objcache.Ino][]byte{}
	for round := range 3 { // slots are used again and again
		for i := range files {
			ino := objcache.Ino(round*files + i + 1)
			f := s.Create(ino, 1, 0)
			f.SetPlace(1, fmt.Sprint("name-", ino))
			p := noise(100, uint64(ino))
			must(t, f.Write(p, 10, aTime))
			if round == 2 && i%3 == 0 { // these are killed before their flush
				want[ino] = p
				continue
			}
			f.Commit(2, 110)
			s.Release(f)
		}
	}
	if shared, err := filepath.Glob(filepath.Join(dir, "files", "*"+slotsSuffix)); err != nil || len(shared) != 1 {
		t.Errorf("%d files of slots (%v): committed files have not given theirs back", len(shared), err)
	}
	must(t, s.lock.Close())
	for life := range 2 { // the second finds what the first has not committed either
		s2, left := open(t, dir, 1<<30)
		if len(left) != len(want) {
			t.Fatalf("life %d: %d leftovers instead of %d", life, len(left), len(want))
		}
		for _, l := range left {
			got := make([]byte, 100)
			_, err := l.File.Raw().ReadAt(got, 10)
			must(t, err)
			if !bytes.Equal(got, want[l.File.Ino()]) || l.Size != 110 || l.Base != 1 || l.Name != fmt.Sprint("name-", l.File.Ino()) {
				t.Fatalf("life %d: inode %d: other bytes, size %d, base %d, name %q", life, l.File.Ino(), l.Size, l.Base, l.Name)
			}
		}
		must(t, s2.lock.Close())
	}
}

func TestOpen_OfTwoSidecarsOfOneFileTheLargerCounts(t *testing.T) {
	dir := t.TempDir()
	s, _ := open(t, dir, 1<<30)
	f := s.Create(1, 1, 0)
	must(t, f.Write([]byte("slot"), 1<<20, aTime))
	slot := append([]byte(nil), f.mu.side.mem...)
	mem := f.mu.side.mem
	for i := range 2 * slotBytes / rangeBytes {
		must(t, f.Write([]byte("x"), int64(2*i), aTime))
	}
	copy(mem, slot) // killed after the file was there and before the slot was free
	must(t, s.lock.Close())
	_, left := open(t, dir, 1<<30)
	if len(left) != 1 || len(left[0].Ranges) != 2*slotBytes/rangeBytes+1 {
		t.Fatalf("leftovers: %v", left)
	}
}

func TestOpen_SecondProcessIsRefused(t *testing.T) {
	dir := t.TempDir()
	open(t, dir, 1<<30)
	if _, _, err := Open(Config{Dir: dir, Bytes: 1, Logger: slog.New(slog.DiscardHandler)}); !errors.Is(err, objcache.Unavailable) {
		t.Errorf("err %v", err)
	}
}

func TestResize_ForgetsWhatWasPendingBehindTheCut(t *testing.T) {
	dir := t.TempDir()
	s, _ := open(t, dir, 1<<30)
	f := s.Create(7, 1, 0)
	must(t, f.Write(noise(3*BlockSize, 1), 0, aTime))
	must(t, f.Resize(2, 100))
	must(t, f.Resize(3, 2*BlockSize))
	if p := f.Pending(); p.Dirty.Bytes() != 100 || p.Size != 2*BlockSize {
		t.Errorf("pending %+v", p)
	}
	want := make([]byte, 2*BlockSize)
	copy(want, noise(3*BlockSize, 1)[:100])
	got := make([]byte, 2*BlockSize)
	if n, err := f.ReadAt(got, 0); err != nil || n != len(got) || !bytes.Equal(got, want) {
		t.Errorf("read %d, %v", n, err)
	}
	must(t, s.lock.Close())
	_, left := open(t, dir, 1<<30)
	if len(left) != 1 || left[0].Ranges.Bytes() != 100 {
		t.Errorf("leftovers %+v", left)
	}
}

func TestDisk_AFileThatIsUsedAgainHoldsNothingOfTheEarlier(t *testing.T) {
	s, _ := open(t, t.TempDir(), 1<<30)
	for i := range 3 {
		f := s.Create(objcache.Ino(1+i), 1, 0)
		must(t, f.Write(noise(1<<20, uint64(i)), 0, aTime))
		f.Commit(2, 1<<20)
		s.Remove(f)
		s.Release(f)
		idle := s.Create(objcache.Ino(100+i), 1, 0)
		must(t, idle.Write(noise(1<<20, uint64(i)), 0, aTime))
		idle.Commit(2, 1<<20)
		s.Release(idle)
		s.Remove(idle) // nobody holds it: the next file takes its place
	}
	if n := len(s.spares.paths); n != 1 {
		t.Fatalf("%d spare files instead of 1", n)
	}
	f := s.Create(200, 1, 0)
	must(t, f.Grow(1<<20, aTime))
	must(t, f.Write([]byte("x"), 1<<20-1, aTime))
	got := make([]byte, 1<<20)
	_, err := f.ReadAt(got, 0)
	must(t, err)
	want := make([]byte, 1<<20)
	want[1<<20-1] = 'x'
	if !bytes.Equal(got, want) {
		t.Error("a new file shows bytes of another")
	}
	if n := len(s.spares.paths); n != 0 {
		t.Error("the spare file was not used again")
	}
}
