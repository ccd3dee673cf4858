package cache

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/objcache/objcache"
)

// fewDescriptors leaves this process n more descriptors until the test ends.
func fewDescriptors(t *testing.T, n int) {
	t.Helper()
	var was unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &was))
	fds, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(len(fds) + n), Max: was.Max}))
	t.Cleanup(func() { must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &was)) })
}

func TestOpen_LeftoversNeedNoDescriptorEach(t *testing.T) {
	dir := t.TempDir()
	s, _ := open(t, dir, 1<<30)
	const files = 100
	for ino := range objcache.Ino(files) {
		f := s.Create(ino+1, 1, 0)
		must(t, f.Write(noise(10, uint64(ino)), 0, aTime))
		s.Release(f)
	}
	must(t, s.lock.Close())
	fewDescriptors(t, 30)
	_, left := open(t, dir, 1<<30)
	if len(left) != files {
		t.Fatalf("%d leftovers of %d", len(left), files)
	}
	for _, l := range left {
		got := make([]byte, 10)
		if _, err := l.File.Raw().ReadAt(got, 0); err != nil || !bytes.Equal(got, noise(10, uint64(l.File.Ino()-1))) {
			t.Fatalf("inode %d: %v", l.File.Ino(), err)
		}
		l.File.store.Release(l.File)
	}
}

func TestOpen_WhatCannotBeReadIsNotRemoved(t *testing.T) {
	for _, odd := range []string{"1-1" + sidecarSuffix, "1" + slotsSuffix} {
		dir := t.TempDir()
		must(t, os.MkdirAll(filepath.Join(dir, "files", odd), 0o755)) // reading it fails, for another reason than that it is garbage
		must(t, os.WriteFile(filepath.Join(dir, "files", "1-1"), []byte("acknowledged"), 0o600))
		s, _, err := Open(Config{Dir: dir, Bytes: 1 << 20, Logger: slog.New(slog.DiscardHandler)})
		if err == nil {
			s.Close()
			t.Errorf("%s: opened", odd)
		}
		if _, err := os.Stat(filepath.Join(dir, "files", "1-1")); err != nil {
			t.Errorf("%s: %v", odd, err)
		}
	}
}

func TestOpen_SlotsThatWereNotFinishedAreNoObstacle(t *testing.T) {
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "files"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "files", "1"+slotsSuffix), nil, 0o600)) // killed before it had its size
	s, _ := open(t, dir, 1<<30)
	f := s.Create(1, 1, 0)
	defer s.Release(f)
	must(t, f.Write([]byte("x"), 0, aTime))
}

func TestOpen_AGrownFileWithoutBytesIsALeftover(t *testing.T) {
	dir := t.TempDir()
	s, _ := open(t, dir, 1<<30)
	f := s.Create(1, 1, 0)
	must(t, f.Grow(100, aTime))
	must(t, s.lock.Close())
	if _, left := open(t, dir, 1<<30); len(left) != 1 || left[0].Size != 100 {
		t.Errorf("leftovers %+v", left)
	}
}

func TestResize_OfAGrownFileLeavesNothingPending(t *testing.T) {
	dir := t.TempDir()
	s, _ := open(t, dir, 1<<30)
	f := s.Create(1, 1, 0)
	must(t, f.Grow(100, aTime))
	must(t, f.Resize(2, 200))
	if f.Pending().Due() {
		t.Error("something is due")
	}
	must(t, s.lock.Close())
	if _, left := open(t, dir, 1<<30); len(left) != 0 {
		t.Errorf("leftover of size %d", left[0].Size)
	}
}

func TestCreate_WhoHoldsTheEarlierFileGoesOnReadingIt(t *testing.T) {
	s, _ := open(t, t.TempDir(), 1<<30)
	f := s.Create(1, 1, 10)
	want := noise(10, 1)
	must(t, f.Fill(1, 0, want))
	s.Release(f) // idle now
	f = s.Acquire(1)
	defer s.Release(f)
	s.Release(s.Create(1, 2, 10))
	got := make([]byte, 10)
	if _, err := f.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
		t.Errorf("read %v, %v", got, err)
	}
}

func TestRebase_ThatFailsCountsNothing(t *testing.T) {
	s, _ := open(t, t.TempDir(), 1<<30)
	f := s.Create(1, 1, 0)
	defer s.Release(f)
	must(t, f.Write(noise(3<<20, 1), 0, aTime))
	_, err := f.disk.write([]byte{1, 2, 3}, 2<<20+7)
	must(t, err) // rots
	before := s.Usage().Bytes
	if _, err := s.Rebase(f, 2, 0); objcache.KindOf(err) != objcache.Corrupt {
		t.Fatalf("rebase: %v", err)
	}
	if got := s.Usage().Bytes; got != before {
		t.Errorf("%d bytes are counted instead of %d", got, before)
	}
}

func TestSpares_AFileThatCouldNotBeOpenedCanBeMadeLater(t *testing.T) {
	s, _ := open(t, t.TempDir(), 1<<30)
	f := s.Create(1, 1, 10)
	must(t, f.Fill(1, 0, noise(10, 1)))
	s.Remove(f)
	s.Release(f)
	f = s.Create(2, 1, 10)
	must(t, f.Fill(1, 0, noise(10, 1)))
	s.mu.Lock()
	s.dropLocked(f)
	s.mu.Unlock()
	s.Release(f) // a spare
	g := s.Create(3, 1, 0)
	defer s.Release(g)
	t.Run("without descriptors", func(t *testing.T) {
		fewDescriptors(t, 0)
		var held []*os.File
		for {
			n, err := os.Open("/dev/null")
			if err != nil {
				break
			}
			held = append(held, n)
		}
		err := g.Write([]byte("x"), 0, aTime)
		for _, n := range held {
			n.Close()
		}
		if err == nil {
			t.Error("written")
		}
	})
	if err := g.Write([]byte("x"), 0, aTime); err != nil {
		t.Error(err)
	}
}

// A write that finds the disk full in its middle has changed bytes: what was acknowledged before must still be readable.
func TestWrite_ThatFailsInItsMiddleLeavesWhatWasThereReadable(t *testing.T) {
	s, _ := open(t, t.TempDir(), 1<<30)
	f := s.Create(1, 1, 0)
	defer s.Release(f)
	must(t, f.Write(noise(2*BlockSize, 1), 0, aTime))
	var was unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_FSIZE, &was))
	must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 2 * BlockSize, Max: was.Max})) // as a full disk: only what is allocated can be written
	err := f.Write(noise(2*BlockSize, 2), BlockSize/2, aTime)
	must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &was))
	if err == nil {
		t.Fatal("written")
	}
	got := make([]byte, 2*BlockSize)
	n, err := f.ReadAt(got, 0)
	if err != nil || n != len(got) {
		t.Fatalf("read %d, %v", n, err)
	}
	want := noise(2*BlockSize, 1)
	copy(want[BlockSize/2:], noise(2*BlockSize, 2))
	if !bytes.Equal(got, want) {
		t.Error("neither the old bytes nor those that were written")
	}
	if p := f.Pending(); p.Size != 2*BlockSize || !p.Dirty.Covers(objcache.Range{Len: 2 * BlockSize}) {
		t.Errorf("pending %+v", p)
	}
}
