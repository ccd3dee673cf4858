//go:build integration

package mounter_test

import (
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/objcache/objcache/fuse/fusetest"
)

func statOf(t testing.TB, f *os.File) unix.Stat_t {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Fstat(int(f.Fd()), &st))
	return st
}

// created is a new file with writes that no flush has committed.
func created(t testing.TB, m *mount) *os.File {
	t.Helper()
	f, err := os.Create(m.path("f"))
	must(t, err)
	t.Cleanup(func() { f.Close() })
	_, err = f.WriteString("written")
	must(t, err)
	return f
}

// git records the ctime it sees before close, and reads every file again whose ctime is another later.
func TestTimes_CloseChangesNoTimeThatFstatHasShown(t *testing.T) {
	eachMode(t, func(t *testing.T, c *fusetest.Cluster, m *mount) {
		f := created(t, m)
		before := statOf(t, f)
		must(t, f.Close())
		g, err := os.Open(m.path("f"))
		must(t, err)
		defer g.Close()
		if after := statOf(t, g); after.Ctim != before.Ctim || after.Mtim != before.Mtim {
			t.Errorf("before close ctime %v, mtime %v; after %v, %v", before.Ctim, before.Mtim, after.Ctim, after.Mtim)
		}
	})
}

func TestTimes_UtimensOfUnflushedWritesLeavesCtimeAlone(t *testing.T) {
	eachMode(t, func(t *testing.T, c *fusetest.Cluster, m *mount) {
		f := created(t, m)
		before := statOf(t, f)
		old := time.Unix(1000, 0)
		must(t, os.Chtimes(m.path("f"), old, old))
		if st := statOf(t, f); st.Mtim.Sec != 1000 || st.Ctim.Nano() < before.Ctim.Nano() {
			t.Errorf("mtime %v, ctime %v; ctime was %v", st.Mtim, st.Ctim, before.Ctim)
		}
		must(t, f.Close())
		var st unix.Stat_t
		must(t, unix.Stat(m.path("f"), &st))
		if st.Mtim.Sec != 1000 || st.Ctim.Nano() < before.Ctim.Nano() {
			t.Errorf("after close mtime %v, ctime %v; ctime was %v", st.Mtim, st.Ctim, before.Ctim)
		}
	})
}

func TestTimes_ChmodOfUnflushedWritesMovesCtimeOnly(t *testing.T) {
	eachMode(t, func(t *testing.T, c *fusetest.Cluster, m *mount) {
		f := created(t, m)
		before := statOf(t, f)
		must(t, f.Chmod(0o600))
		after := statOf(t, f)
		if after.Ctim.Nano() <= before.Ctim.Nano() || after.Mtim != before.Mtim {
			t.Errorf("ctime %v then %v, mtime %v then %v", before.Ctim, after.Ctim, before.Mtim, after.Mtim)
		}
	})
}

// As cp -p and tar do: the mode is set before close.
func TestSetuid_SurvivesTheCloseOfItsWriter(t *testing.T) {
	eachMode(t, func(t *testing.T, c *fusetest.Cluster, m *mount) {
		f := created(t, m)
		must(t, unix.Fchmod(int(f.Fd()), 0o6755))
		must(t, f.Close())
		var st unix.Stat_t
		must(t, unix.Stat(m.path("f"), &st))
		if st.Mode&0o7777 != 0o6755 {
			t.Errorf("mode %o after close", st.Mode)
		}
	})
}

func TestSetuid_IsClearedByAWriterWithoutPrivilegeAlsoWhenSetWhileOpen(t *testing.T) {
	eachMode(t, func(t *testing.T, c *fusetest.Cluster, m *mount) {
		f := created(t, m)
		must(t, f.Sync())
		must(t, os.Chmod(m.path("f"), 0o777|os.ModeSetuid|os.ModeSetgid))
		done := make(chan error)
		go func() {
			runtime.LockOSThread() // and never unlocked: the thread ends with its identity
			if err := syscall.Setfsuid(65534); err != nil {
				done <- err
				return
			}
			_, err := f.WriteAt([]byte("x"), 0)
			done <- err
		}()
		must(t, <-done)
		if st := statOf(t, f); st.Mode&0o7777 != 0o777 {
			t.Errorf("mode %o", st.Mode)
		}
	})
}

func TestWrite_BehindTheLargestFileIsEFBIGAndSpoilsNothing(t *testing.T) {
	eachMode(t, func(t *testing.T, c *fusetest.Cluster, m *mount) {
		f := created(t, m)
		for _, off := range []int64{5 << 40, 1 << 62} {
			if _, err := unix.Pwrite(int(f.Fd()), []byte("x"), off); err != unix.EFBIG {
				t.Errorf("write at %d: %v", off, err)
			}
		}
		if err := unix.Fallocate(int(f.Fd()), 0, 5<<40, 1); err != unix.EFBIG {
			t.Errorf("fallocate: %v", err)
		}
		must(t, f.Close())
		if got := read(t, m.path("f")); string(got) != "written" {
			t.Errorf("read %q", got)
		}
	})
}
