//go:build integration

package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/objcache/objcache/fuse"
	"github.com/objcache/objcache/server"
	"github.com/objcache/objcache/test/programs"
	"github.com/objcache/objcache/test/wait"
)

// TestLocks_FlockAndFcntlHoldAcrossMounts uses flock(1), and fcntl(2) of this process: each mount is a session of its own.
func TestLocks_FlockAndFcntlHoldAcrossMounts(t *testing.T) {
	m := newMounted(t, "auto")
	other := filepath.Join(m.mount("auto", fuse.CloseToOpen), "data")
	a, err := os.Create(filepath.Join(m.dir, "f"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.OpenFile(filepath.Join(other, "f"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	lock := func(f *os.File, typ int16, start, n int64) error {
		return unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: typ, Start: start, Len: n})
	}
	for _, step := range []struct {
		f        *os.File
		typ      int16
		start, n int64
		want     error
	}{
		{a, unix.F_WRLCK, 0, 10, nil}, {b, unix.F_RDLCK, 5, 1, unix.EAGAIN}, {b, unix.F_WRLCK, 10, 0, nil}, {a, unix.F_WRLCK, 1 << 40, 1, unix.EAGAIN},
		{a, unix.F_RDLCK, 0, 10, nil}, {b, unix.F_RDLCK, 0, 10, nil}, {a, unix.F_WRLCK, 0, 1, unix.EAGAIN}, {b, unix.F_UNLCK, 0, 0, nil}, {a, unix.F_WRLCK, 0, 0, nil},
	} {
		if err := lock(step.f, step.typ, step.start, step.n); !errors.Is(err, step.want) {
			t.Errorf("%+v: %v", step, err)
		}
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if err := lock(b, unix.F_WRLCK, 0, 0); err != nil {
		t.Errorf("after the other's close: %v", err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	// flock(1) gives its lock to the command that it becomes, with the descriptor.
	holder := exec.CommandContext(t.Context(), "flock", "--no-fork", "-x", filepath.Join(m.dir, "f"), "sleep", "60")
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	try := func() error {
		return exec.CommandContext(t.Context(), "flock", "-n", "-s", filepath.Join(other, "f"), "true").Run()
	}
	wait.Until(t, 10*time.Second, "flock is held", func() bool { return try() != nil })
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := holder.Wait(); err == nil {
		t.Error("the holder was not killed")
	}
	wait.Until(t, 10*time.Second, "its death gives the lock back", func() bool { return try() == nil })
}

func TestLocks_SqliteOnTwoMountsLosesNoUpdate(t *testing.T) {
	m := newMounted(t, "auto", func(c *server.Config) { c.FlushInterval = server.Duration(300 * time.Millisecond) }) // it is persisted meanwhile
	programs.RaiseCounter(t, 60, filepath.Join(m.dir, "db"), filepath.Join(m.mount("auto", fuse.CloseToOpen), "data", "db"))
}
