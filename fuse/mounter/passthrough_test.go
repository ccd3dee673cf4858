//go:build integration

package mounter_test

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/objcache/objcache/fuse/fusetest"
	"github.com/objcache/objcache/fuse/mounter"
)

func startCat(t *testing.T, path string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("cat", path)
	must(t, cmd.Start())
	return cmd
}

// openPassed opens a file that is complete until the kernel reads it itself: the RELEASE of the descriptor that wrote it comes a moment after its close.
func openPassed(t *testing.T, m *mount, path string) *os.File {
	t.Helper()
	var f *os.File
	before := m.Status().Passthrough.Open
	within(t, 5*time.Second, "passthrough", func() bool {
		var err error
		f, err = os.Open(path)
		must(t, err)
		if m.Status().Passthrough.Open > before {
			return true
		}
		f.Close()
		return false
	})
	return f
}

func off(c *mounter.Config) { c.Passthrough = "off" }

func TestPassthrough_CompleteFileIsReadByTheKernelItself(t *testing.T) {
	m := mountOn(t, fusetest.New())
	want := noise(3<<20, 1)
	must(t, os.WriteFile(m.path("f"), want, 0o644))
	f := openPassed(t, m, m.path("f"))
	defer f.Close()
	got, err := io.ReadAll(f)
	must(t, err)
	if !bytes.Equal(got, want) {
		t.Error("read differs")
	}
	if mem := mapped(t, "load", m.path("f"), 0, 3<<20, nil); !bytes.Equal(mem, want) {
		t.Error("mapping differs")
	}
}

func TestPassthrough_OffIsNeverUsedAndStatusSaysWhy(t *testing.T) {
	m := mountOn(t, fusetest.New(), off)
	must(t, os.WriteFile(m.path("f"), noise(3<<20, 1), 0o644))
	f, err := os.Open(m.path("f"))
	must(t, err)
	defer f.Close()
	if s := m.Status(); s.Passthrough.On || s.Passthrough.Open != 0 || !strings.Contains(s.Passthrough.Why, "configured") {
		t.Errorf("passthrough is %+v", s.Passthrough)
	}
}

func TestPassthrough_FileThatBecameCompleteWhileOpenIsPassedToTheNextOpen(t *testing.T) {
	c := fusetest.New()
	a, b := mountOn(t, c), mountOn(t, c)
	want := noise(2<<20, 2)
	must(t, os.WriteFile(a.path("f"), want, 0o644))
	cached, err := os.Open(b.path("f")) // incomplete: cached
	must(t, err)
	defer cached.Close()
	got, err := io.ReadAll(cached)
	must(t, err)
	if !bytes.Equal(got, want) {
		t.Fatal("read differs")
	}
	if n := b.Status().Passthrough.Open; n != 0 {
		t.Fatalf("%d passthrough opens of an incomplete file", n)
	}
	passed, err := os.Open(b.path("f"))
	must(t, err)
	defer passed.Close()
	if n := b.Status().Passthrough.Open; n != 1 {
		t.Errorf("%d passthrough opens beside a cached one", n)
	}
	var one, two unix.Stat_t
	must(t, unix.Fstat(int(cached.Fd()), &one))
	must(t, unix.Fstat(int(passed.Fd()), &two))
	if one.Ino != two.Ino {
		t.Errorf("inode %d and %d", one.Ino, two.Ino)
	}
	if got := read(t, b.path("f")); !bytes.Equal(got, want) {
		t.Error("read differs")
	}
}

func TestPassthrough_ReadersSeeAWriterOfTheSameNodeAtOnce(t *testing.T) {
	m := mountOn(t, fusetest.New())
	want := noise(1<<20, 3)
	must(t, os.WriteFile(m.path("f"), want, 0o644))
	r := openPassed(t, m, m.path("f"))
	defer r.Close()
	w, err := os.OpenFile(m.path("f"), os.O_RDWR, 0)
	must(t, err)
	defer w.Close()
	_, err = w.WriteAt([]byte("written now"), 5000)
	must(t, err)
	for name, f := range map[string]*os.File{"passthrough": r, "writer": w} {
		p := make([]byte, 11)
		if _, err := f.ReadAt(p, 5000); err != nil || string(p) != "written now" {
			t.Errorf("%s reads %q, %v", name, p, err)
		}
	}
}

func TestPassthrough_OldDescriptorKeepsItsVersionAndTheNextOpenGetsTheNew(t *testing.T) {
	c := fusetest.New()
	a, b := mountOn(t, c), mountOn(t, c)
	first, second := noise(1<<20, 1), noise(1<<20+77, 2)
	must(t, os.WriteFile(a.path("f"), first, 0o644))
	read(t, b.path("f"))
	old := openPassed(t, b, b.path("f"))
	defer old.Close()
	must(t, os.WriteFile(a.path("f"), second, 0o644))
	if got := read(t, b.path("f")); !bytes.Equal(got, second) {
		t.Error("the next open reads the old version")
	}
	got, err := io.ReadAll(old)
	must(t, err)
	if !bytes.Equal(got, first) {
		t.Error("the old descriptor no longer reads its version")
	}
}

func TestPassthrough_NoProgramSeesESTALEWhileVersionsSwitch(t *testing.T) {
	c := fusetest.New()
	a, b := mountOn(t, c), mountOn(t, c)
	must(t, os.WriteFile(a.path("f"), noise(1<<16, 1), 0o644))
	var stop atomic.Bool
	var opens atomic.Int64
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() {
			flags := os.O_RDONLY
			if w == 3 {
				flags = os.O_RDWR
			}
			for !stop.Load() {
				f, err := os.OpenFile(b.path("f"), flags, 0)
				if err != nil {
					t.Error(err)
					return
				}
				opens.Add(1)
				if _, err := io.ReadFull(f, make([]byte, 1<<16)); err != nil {
					t.Error(err)
				}
				f.Close()
			}
		})
	}
	f, err := os.OpenFile(a.path("f"), os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	for i := range 300 {
		_, err := f.WriteAt(noise(1<<16, uint64(i)), 0)
		must(t, err)
		must(t, f.Sync())
	}
	stop.Store(true)
	all.Wait()
	if opens.Load() < 100 {
		t.Errorf("only %d opens", opens.Load())
	}
}
