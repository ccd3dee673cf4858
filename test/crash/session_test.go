//go:build integration

package crash

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/objcache/objcache/test/wait"
)

// TestSession_AStoppedMountComesBackWithoutItsLocks stops the process of a mount for longer than its lease.
func TestSession_AStoppedMountComesBackWithoutItsLocks(t *testing.T) {
	t.Parallel()
	path := build(t, "")
	c := newCluster(t, newLauncher(t), path)
	c.must("up", "--capacity", "1GiB", "--session-lease", sqliteLease)
	second := t.TempDir()
	c.must("mount", second)
	t.Cleanup(func() { _ = unix.Unmount(second, unix.MNT_DETACH) })
	here, there := filepath.Join(c.mnt(), bucket, "f"), filepath.Join(second, bucket, "f")
	if err := os.WriteFile(here, []byte("base base base"), 0o644); err != nil {
		t.Fatal(err)
	}
	open := func(name string) *os.File {
		t.Helper()
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	mine, theirs := open(there), open(here)
	lock := func(f *os.File) error {
		return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
	}
	if err := lock(mine); err != nil {
		t.Fatal(err)
	}
	if err := lock(theirs); !errors.Is(err, unix.EAGAIN) {
		t.Fatalf("two have the lock: %v", err)
	}
	if _, err := mine.WriteAt([]byte("MINE"), 5); err != nil { // and no flush
		t.Fatal(err)
	}
	pid := mountPID(t, c, second)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	cont := func() error { return syscall.Kill(pid, syscall.SIGCONT) }
	t.Cleanup(func() { _ = cont() }) // again, when the test has failed in between
	wait.Until(t, 20*time.Second, "the lock is free", func() bool { return lock(theirs) == nil })
	if _, err := theirs.WriteAt([]byte("THEIRS"), 0); err != nil {
		t.Fatal(err)
	}
	if err := theirs.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cont(); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, 20*time.Second, "the descriptor is refused", func() bool {
		_, err := mine.WriteAt([]byte("LATE"), 5)
		return errors.Is(err, unix.EIO)
	})
	var aside []string
	wait.Until(t, 20*time.Second, "what was written is set aside", func() bool {
		aside, _ = filepath.Glob(here + ".objcache-conflict-*")
		return len(aside) == 1
	})
	wait.Until(t, 20*time.Second, "it is complete", func() bool {
		got, err := os.ReadFile(aside[0])
		return err == nil && len(got) == 14 && string(got[:5]) == "THEIR" && (string(got[5:9]) == "MINE" || string(got[5:9]) == "LATE")
	})
	if got, err := os.ReadFile(here); string(got) != "THEIRSase base" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	_ = mine.Close() // it may say once more that its bytes were not committed
	again := open(there)
	if err := lock(again); err != nil {
		t.Errorf("a new descriptor: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}
