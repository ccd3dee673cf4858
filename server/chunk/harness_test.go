package chunk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"github.com/objcache/objcache/test/wait"
	"io"
	"log/slog"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"sync/atomic"

	"github.com/objcache/objcache"
)

const (
	kib = 1 << 10
	mib = 1 << 20
)

var someKey = objcache.ChunkKey{Ino: 77, Index: 3}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// openStore opens a store without a Started.
func openStore(t testing.TB, dir string, opt Options) *Store {
	t.Helper()
	if opt.Budget == nil {
		opt.Budget = NewBudget(1<<30, 0)
	}
	if opt.SegmentSize == 0 {
		opt.SegmentSize = 4 * mib
	}
	opt.Logger = quiet()
	s, err := Open(dir, opt)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// newStore opens an empty store that is closed at the end of the test.
func newStore(t testing.TB, opt Options) *Store {
	t.Helper()
	s := openStore(t, t.TempDir(), opt)
	if err := s.Started(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// content is n bytes that differ by seed and contain no long runs.
func content(seed uint64, n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16), 1})
	_, _ = r.Read(b) // never fails
	return b
}

func write(t testing.TB, s *Store, key objcache.ChunkKey, off int64, p []byte) Place {
	t.Helper()
	pl, err := s.Write(context.Background(), key, off, p)
	if err != nil {
		t.Fatal(err)
	}
	if pl.Start != off || pl.Len != int64(len(p)) || !pl.valid() {
		t.Fatalf("write of %d at %d: place %+v", len(p), off, pl)
	}
	return pl
}

func syncStore(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Sync(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// readBack reads a whole place.
func readBack(s *Store, key objcache.ChunkKey, pl Place) ([]byte, error) {
	p := make([]byte, pl.Len)
	return p, s.Read(context.Background(), key, pl, pl.Start, p)
}

func wantBytes(t testing.TB, s *Store, key objcache.ChunkKey, pl Place, want []byte) {
	t.Helper()
	got, err := readBack(s, key, pl)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("place %d+%d: other bytes", pl.Start, pl.Len)
	}
}

// eventually waits for a state that background work reaches.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	wait.Until(t, 10*time.Second, what, ok)
}

// faultFS fails writes, allocations or syncs with ENOSPC or EIO while its switches are on.
type faultFS struct {
	FS
	full, badSync atomic.Bool
}

func (f *faultFS) Open(name string, create, direct bool) (File, error) {
	file, err := f.FS.Open(name, create, direct)
	if err != nil {
		return nil, err
	}
	return faultFile{file, f}, nil
}

type faultFile struct {
	File
	fs *faultFS
}

func (f faultFile) WriteAt(p []byte, off int64) (int, error) {
	if f.fs.full.Load() {
		n, err := f.File.WriteAt(p[:len(p)/2], off) // a full disk may take a part
		return n, errors.Join(err, fmt.Errorf("write: %w", syscall.ENOSPC))
	}
	return f.File.WriteAt(p, off)
}

func (f faultFile) Sync() error {
	if f.fs.badSync.Load() {
		return syscall.EIO
	}
	return f.File.Sync()
}
