//go:build integration

package mounter_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/objcache/objcache/fuse/fusetest"
	"github.com/objcache/objcache/fuse/mounter"
)

// kept is a child that has mapped a file and closed it.
type kept struct {
	cmd   *exec.Cmd
	say   io.WriteCloser
	hear  io.Reader
	bytes int
}

// childKeeps maps n bytes of path, closes the descriptor, says so, and writes the mapped bytes to standard output when standard input ends.
func childKeeps(path string, n int) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, n, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if _, err := os.Stdout.Write([]byte{'+'}); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	_, err = os.Stdout.Write(mem)
	return err
}

func keepMapped(t *testing.T, path string, n int) *kept {
	t.Helper()
	cmd := exec.Command(os.Args[0], "keep", path, "0", fmt.Sprint(n))
	cmd.Env = append(os.Environ(), childEnv+"=1", "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	_, err = io.ReadFull(out, make([]byte, 1))
	must(t, err)
	return &kept{cmd, in, out, n}
}

// load returns what the child sees through its mapping now.
func (k *kept) load(t *testing.T) []byte {
	t.Helper()
	must(t, k.say.Close())
	got, err := io.ReadAll(k.hear)
	must(t, err)
	if len(got) != k.bytes {
		t.Fatalf("the child wrote %d bytes of %d: it died of the mapping", len(got), k.bytes)
	}
	return got
}

// The kernel maps the backing file itself: a mapping outlives the descriptor, of which the RELEASE is all that this process hears.
func TestRecycle_AMappingOutlivesItsDescriptorAndTheCacheFile(t *testing.T) {
	c := fusetest.New()
	m, other := mountOn(t, c), mountOn(t, c)
	want := noise(1<<20, 1)
	must(t, os.WriteFile(m.path("f"), want, 0o644))
	openPassed(t, m, m.path("f")).Close()
	k := keepMapped(t, m.path("f"), 1<<20)
	within(t, unmountDeadline, "release", func() bool { return m.Status().Passthrough.Open == 0 })
	must(t, os.WriteFile(other.path("f"), noise(1<<20, 2), 0o644))
	read(t, m.path("f"))                                       // m switches to the new version and lets go of the cache file of the old one
	must(t, os.WriteFile(m.path("g"), noise(1<<20, 3), 0o644)) // another file takes what became free
	must(t, os.WriteFile(m.path("h"), noise(1<<20, 4), 0o644))
	if got := k.load(t); !bytes.Equal(got, want) {
		t.Errorf("the mapping shows other bytes; those of another file: %v", bytes.Equal(got, noise(1<<20, 3)) || bytes.Equal(got, noise(1<<20, 4)))
	}
}

func TestRecycle_AMappingOutlivesTheEvictionOfItsFile(t *testing.T) {
	m := mountOn(t, fusetest.New(), func(c *mounter.Config) { c.CacheBytes = 8 << 20 })
	want := noise(1<<20, 1)
	must(t, os.WriteFile(m.path("f"), want, 0o644))
	openPassed(t, m, m.path("f")).Close()
	k := keepMapped(t, m.path("f"), 1<<20)
	within(t, unmountDeadline, "release", func() bool { return m.Status().Passthrough.Open == 0 })
	for i := range 40 {
		must(t, os.WriteFile(m.path(fmt.Sprintf("g%d", i)), noise(1<<20, 100), 0o644))
	}
	if got := k.load(t); !bytes.Equal(got, want) {
		t.Errorf("the mapping shows other bytes; those of another file: %v", bytes.Equal(got, noise(1<<20, 100)))
	}
}

// The earlier process had given the file to the kernel, and the next one does not know.
func TestRecycle_AMappingOutlivesTheProcessAndTheRecovery(t *testing.T) {
	c := fusetest.New()
	m := mountOn(t, c)
	want := noise(1<<20, 1)
	must(t, os.WriteFile(m.path("f"), want, 0o644))
	openPassed(t, m, m.path("f")).Close()
	k := keepMapped(t, m.path("f"), 1<<20)
	f, err := os.OpenFile(m.path("f"), os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	_, err = f.WriteAt([]byte("written"), 70_000)
	must(t, err)
	copy(want[70_000:], "written")
	m.kill(t)
	n := mountOn(t, c, withCache(m.cache))
	must(t, os.WriteFile(n.path("g"), noise(1<<20, 3), 0o644))
	if got := k.load(t); !bytes.Equal(got, want) {
		t.Errorf("the mapping shows other bytes; those of another file: %v", bytes.Equal(got, noise(1<<20, 3)))
	}
}
