//go:build integration

package mounter_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/fuse"
	"github.com/objcache/objcache/fuse/fusetest"
	"github.com/objcache/objcache/fuse/mounter"
)

func strict(c *mounter.Config) { c.Consistency = fuse.Strict }

func TestCloseToOpen_OpenSeesWhatAnotherMountClosed(t *testing.T) {
	for mode, change := range modes {
		t.Run(mode, func(t *testing.T) {
			c := fusetest.New()
			a, b := mountOn(t, c, change), mountOn(t, c, change)
			for i := range 60 {
				// Longer, shorter and equal; the reader has the earlier size cached each time.
				want := noise(100000+(i%3)*70000, uint64(i))
				w, r := a, b
				if i%5 == 4 {
					w, r = b, a
				}
				must(t, os.WriteFile(w.path("f"), want, 0o644))
				if got := read(t, r.path("f")); !bytes.Equal(got, want) {
					t.Fatalf("round %d: read %d bytes that differ from the %d written", i, len(got), len(want))
				}
				if got := read(t, w.path("f")); !bytes.Equal(got, want) {
					t.Fatalf("round %d: the writer's node reads something else", i)
				}
			}
		})
	}
}

func TestCloseToOpen_ReadersNeverSeeAMixOfVersions(t *testing.T) {
	for mode, change := range modes {
		if mode == "strict" {
			continue // atomic per request there
		}
		t.Run(mode, func(t *testing.T) {
			c := fusetest.New()
			a, b := mountOn(t, c, change), mountOn(t, c, change)
			const n = 3 << 20
			must(t, os.WriteFile(a.path("f"), bytes.Repeat([]byte{1}, n), 0o644))
			var stop atomic.Bool
			var all sync.WaitGroup
			for range 3 {
				all.Go(func() {
					buf := make([]byte, n)
					for !stop.Load() {
						f, err := os.Open(b.path("f"))
						if err != nil {
							t.Error(err)
							return
						}
						k, err := io.ReadFull(f, buf[:4096])
						f.Close()
						if err != nil || bytes.Count(buf[:k], buf[:1]) != k || buf[0] == 0 {
							t.Errorf("%d bytes, %v, first %d", k, err, buf[0])
							return
						}
					}
				})
			}
			f, err := os.OpenFile(a.path("f"), os.O_RDWR, 0)
			must(t, err)
			for i := range 40 {
				_, err := f.WriteAt(bytes.Repeat([]byte{byte(i + 2)}, n), 0)
				must(t, err)
				must(t, f.Sync())
			}
			must(t, f.Close())
			stop.Store(true)
			all.Wait()
			if got := read(t, b.path("f")); bytes.Count(got, []byte{41}) != n {
				t.Error("the last version is not what the other mount reads")
			}
		})
	}
}

func TestStrict_WriteIsReadByAnotherMountBeforeAnyClose(t *testing.T) {
	c := fusetest.New()
	a, b := mountOn(t, c, strict), mountOn(t, c, strict)
	w, err := os.Create(a.path("f"))
	must(t, err)
	defer w.Close()
	r, err := os.Open(b.path("f"))
	must(t, err)
	defer r.Close()
	for i := range 50 {
		want := fmt.Sprintf("line %03d\n", i)
		_, err := w.WriteString(want)
		must(t, err)
		got := make([]byte, len(want))
		if _, err := r.ReadAt(got, int64(i*len(want))); err != nil || string(got) != want {
			t.Fatalf("read %q, %v after %q was written", got, err, want)
		}
	}
}

func TestFstat_OfAnOpenFileFollowsAnotherMountsGrowth(t *testing.T) {
	c := fusetest.New()
	a, b := mountOn(t, c), mountOn(t, c)
	must(t, os.WriteFile(a.path("log"), []byte("one\n"), 0o644))
	r, err := os.Open(b.path("log"))
	must(t, err)
	defer r.Close()
	first, err := io.ReadAll(r)
	must(t, err)
	f, err := os.OpenFile(a.path("log"), os.O_WRONLY|os.O_APPEND, 0)
	must(t, err)
	_, err = f.WriteString("two\n")
	must(t, err)
	must(t, f.Close())
	within(t, 5*time.Second, "an open descriptor sees the appended line", func() bool {
		_, err := r.Stat()
		must(t, err)
		more, err := io.ReadAll(r)
		must(t, err)
		first = append(first, more...)
		return string(first) == "one\ntwo\n"
	})
}

func TestFlush_TwoMountsWritingDifferentPartsKeepBoth(t *testing.T) {
	c := fusetest.New()
	a, b := mountOn(t, c), mountOn(t, c)
	must(t, os.WriteFile(a.path("f"), make([]byte, 400000), 0o644))
	fa, err := os.OpenFile(a.path("f"), os.O_RDWR, 0)
	must(t, err)
	fb, err := os.OpenFile(b.path("f"), os.O_RDWR, 0)
	must(t, err)
	_, err = fa.WriteAt([]byte("from a"), 100)
	must(t, err)
	_, err = fb.WriteAt([]byte("from b"), 300000)
	must(t, err)
	must(t, fa.Close())
	must(t, fb.Close())
	want := make([]byte, 400000)
	copy(want[100:], "from a")
	copy(want[300000:], "from b")
	for _, m := range []*mount{a, b} {
		if !bytes.Equal(read(t, m.path("f")), want) {
			t.Errorf("%s differs", m.dir)
		}
	}
}

func TestFlush_FailureIsReportedByCloseAndFsyncOfEveryDescriptor(t *testing.T) {
	c := fusetest.New()
	m := mountOn(t, c)
	f, err := os.Create(m.path("f"))
	must(t, err)
	fd, err := syscall.Dup(int(f.Fd()))
	must(t, err)
	g, err := os.OpenFile(m.path("f"), os.O_RDWR, 0)
	must(t, err)
	_, err = f.WriteString("precious")
	must(t, err)
	var full atomic.Bool
	full.Store(true)
	c.SetHook(func(_ context.Context, op string, _ objcache.Ino) error {
		if op == "Flush" && full.Load() {
			return objcache.Errorf(objcache.NoSpace, "disk")
		}
		return nil
	})
	if err := f.Sync(); !isErrno(err, syscall.ENOSPC) {
		t.Errorf("fsync: %v", err)
	}
	if err := syscall.Close(fd); err != syscall.ENOSPC {
		t.Errorf("close of a duplicate: %v", err)
	}
	if err := g.Sync(); !isErrno(err, syscall.ENOSPC) {
		t.Errorf("fsync of another descriptor: %v", err)
	}
	if err := g.Close(); !isErrno(err, syscall.ENOSPC) {
		t.Errorf("close of another descriptor: %v", err)
	}
	full.Store(false)
	must(t, f.Close())
	if got, _ := c.Content("f"); string(got) != "precious" {
		t.Errorf("cluster has %q", got)
	}
}

func isErrno(err error, want syscall.Errno) bool {
	return errors.Is(err, want)
}

func TestWrite_LargeFileIsStagedWhileItIsWritten(t *testing.T) {
	c := fusetest.New()
	m := mountOn(t, c)
	want := noise(24<<20, 5)
	f, err := os.Create(m.path("f"))
	must(t, err)
	_, err = f.Write(want)
	must(t, err)
	within(t, 10*time.Second, "staging ahead of the close", func() bool { return c.Calls("Stage") >= 2 })
	if got, _ := c.Content("f"); len(got) != 0 {
		t.Error("staged bytes are visible before the flush")
	}
	_, err = f.WriteAt([]byte("again"), 5<<20) // already staged
	must(t, err)
	copy(want[5<<20:], "again")
	must(t, f.Close())
	if got, _ := c.Content("f"); !bytes.Equal(got, want) {
		t.Error("cluster differs")
	}
	before := c.Calls("ReadAt")
	if !bytes.Equal(read(t, m.path("f")), want) {
		t.Error("read differs")
	}
	if n := c.Calls("ReadAt") - before; n != 0 {
		t.Errorf("reading what this node has just written took %d fetches", n)
	}
}

func TestRead_ColdFileIsFetchedOnceByManyReaders(t *testing.T) {
	for mode, change := range modes {
		t.Run(mode, func(t *testing.T) {
			c := fusetest.New()
			a, b := mountOn(t, c), mountOn(t, c, change)
			want := noise(20<<20+5, 8)
			must(t, os.WriteFile(a.path("f"), want, 0o644))
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					if got, err := os.ReadFile(b.path("f")); err != nil || !bytes.Equal(got, want) {
						t.Errorf("read differs, %v", err)
					}
				})
			}
			all.Wait()
			if n := c.Calls("ReadAt"); n > 21 {
				t.Errorf("21 regions took %d fetches", n)
			}
		})
	}
}

func TestInterrupt_ReadThatWaitsForTheClusterCanBeKilled(t *testing.T) {
	c := fusetest.New()
	a, b := mountOn(t, c), mountOn(t, c)
	must(t, os.WriteFile(a.path("f"), noise(100000, 1), 0o644))
	down := make(chan struct{})
	c.SetHook(func(ctx context.Context, op string, _ objcache.Ino) error {
		if op != "ReadAt" {
			return nil
		}
		select {
		case <-down:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	cmd := startCat(t, b.path("f"))
	within(t, 5*time.Second, "the read reaches the cluster", func() bool { return c.Calls("ReadAt") > 0 })
	must(t, cmd.Process.Kill())
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		if err := cmd.Wait(); err == nil {
			t.Error("cat ended well although it was killed")
		}
	}()
	select {
	case <-exited:
	case <-time.After(10 * time.Second):
		t.Error("cat does not die")
	}
	close(down)
	if got := read(t, b.path("f")); !bytes.Equal(got, noise(100000, 1)) {
		t.Error("read differs once the cluster is back")
	}
}

// TestOpen_NeverGetsAFileWithoutANameByItsName: sqlite made its journal in another mount's journal, which was removed and still open there.
func TestOpen_NeverGetsAFileWithoutANameByItsName(t *testing.T) {
	c := fusetest.New()
	m1, m2 := mountOn(t, c), mountOn(t, c)
	theirs, err := os.Create(m1.path("journal"))
	must(t, err)
	_, err = os.Stat(m2.path("journal")) // this kernel trusts the name for a second
	must(t, err)
	must(t, os.Remove(m1.path("journal")))
	mine, err := os.OpenFile(m2.path("journal"), os.O_RDWR|os.O_CREATE, 0o644)
	must(t, err)
	_, err = mine.WriteString("mine")
	must(t, err)
	must(t, mine.Sync())
	if got, ok := c.Content("journal"); !ok || string(got) != "mine" {
		t.Errorf("the name has %q, %v", got, ok)
	}
	again, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", theirs.Fd())) // by no name at all
	must(t, err)
	must(t, again.Close())
	must(t, mine.Close())
	must(t, theirs.Close())
}
