//go:build integration

package mounter_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/objcache/objcache/fuse/fusetest"
)

// A process that serves a mount must not touch a mapping of a file on it: the page fault stops a thread that the collector waits for, and
// the handler waits for the collector. So mappings are made by a child: this test binary again, told so by its environment.
const childEnv = "OBJCACHE_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) == "" {
		os.Exit(m.Run())
	}
	if err := child(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// child does "load|store|late path offset length": load writes the mapped bytes to standard output, store takes bytes from standard input
// and syncs them, late stores them after the last descriptor is closed. For keep see childKeeps.
func child(args []string) error {
	off, err1 := strconv.ParseInt(args[2], 10, 64)
	n, err2 := strconv.ParseInt(args[3], 10, 64)
	if err := errors.Join(err1, err2); err == nil && args[0] == "keep" {
		return childKeeps(args[1], int(n))
	}
	flags, prot := os.O_RDWR, unix.PROT_READ|unix.PROT_WRITE
	if args[0] == "load" {
		flags, prot = os.O_RDONLY, unix.PROT_READ
	}
	f, err3 := os.OpenFile(args[1], flags, 0)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	page := off &^ 4095
	mem, err := unix.Mmap(int(f.Fd()), page, int(off+n-page), prot, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	if args[0] == "load" {
		_, err := os.Stdout.Write(mem[off-page:])
		return err
	}
	if args[0] == "late" {
		if err := f.Close(); err != nil {
			return err
		}
	}
	if _, err := io.ReadFull(os.Stdin, mem[off-page:]); err != nil {
		return err
	}
	if args[0] == "store" {
		if err := unix.Msync(mem, unix.MS_SYNC); err != nil {
			return err
		}
	}
	return unix.Munmap(mem)
}

func mapped(t testing.TB, op, path string, off, n int64, in []byte) []byte {
	t.Helper()
	cmd := exec.Command(os.Args[0], op, path, fmt.Sprint(off), fmt.Sprint(n))
	cmd.Env = append(os.Environ(), childEnv+"=1", "GORACE=atexit_sleep_ms=0") // else the race detector sleeps a second in each child
	cmd.Stdin = bytes.NewReader(in)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %d at %d through a mapping: %v\n%s", op, n, off, err, stderr.String())
	}
	return out
}

func TestMmap_SharedStoresAreReadAndCommitted(t *testing.T) {
	eachMode(t, func(t *testing.T, c *fusetest.Cluster, m *mount) {
		want := noise(1<<20, 3)
		must(t, os.WriteFile(m.path("f"), want, 0o644))
		if got := mapped(t, "load", m.path("f"), 0, 1<<20, nil); !bytes.Equal(got, want) {
			t.Error("mapping differs from what was written")
		}
		mapped(t, "store", m.path("f"), 5000, 6, []byte("stored"))
		copy(want[5000:], "stored")
		mapped(t, "late", m.path("f"), 9000, 15, []byte("after the close"))
		copy(want[9000:], "after the close")
		within(t, 5*time.Second, "commit of a store after the last close", func() bool {
			got, _ := c.Content("f")
			return bytes.Equal(got, want)
		})
		if !bytes.Equal(read(t, m.path("f")), want) {
			t.Error("read after munmap differs")
		}
	})
}

func TestMmap_ColdFileIsMappedWhole(t *testing.T) {
	eachMode(t, func(t *testing.T, c *fusetest.Cluster, m *mount) {
		want := noise(9<<20, 3)
		must(t, os.WriteFile(mountOn(t, c).path("f"), want, 0o644))
		if got := mapped(t, "load", m.path("f"), 0, 9<<20, nil); !bytes.Equal(got, want) {
			t.Error("mapping differs")
		}
	})
}
