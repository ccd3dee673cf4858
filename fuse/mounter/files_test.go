//go:build integration

package mounter_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/objcache/objcache/fuse/fusetest"
)

// eachMode runs a claim in every mode of a mount.
func eachMode(t *testing.T, claim func(t *testing.T, c *fusetest.Cluster, m *mount)) {
	for mode, change := range modes {
		t.Run(mode, func(t *testing.T) {
			c := fusetest.New()
			claim(t, c, mountOn(t, c, change))
		})
	}
}

func read(t testing.TB, path string) []byte {
	t.Helper()
	p, err := os.ReadFile(path)
	must(t, err)
	return p
}

func TestRename_OverOpenFileKeepsTheOldOneReadable(t *testing.T) {
	eachMode(t, func(t *testing.T, c *fusetest.Cluster, m *mount) {
		must(t, os.WriteFile(m.path("a"), []byte("old"), 0o644))
		must(t, os.WriteFile(m.path("b"), []byte("new"), 0o644))
		f, err := os.Open(m.path("a"))
		must(t, err)
		defer f.Close()
		must(t, os.Rename(m.path("b"), m.path("a")))
		if got, err := io.ReadAll(f); err != nil || string(got) != "old" {
			t.Errorf("old descriptor reads %q, %v", got, err)
		}
		if got := read(t, m.path("a")); string(got) != "new" {
			t.Errorf("name reads %q", got)
		}
		must(t, unix.Renameat2(unix.AT_FDCWD, m.path("a"), unix.AT_FDCWD, m.path("c"), unix.RENAME_NOREPLACE))
		must(t, os.WriteFile(m.path("d"), []byte("d"), 0o644))
		if err := unix.Renameat2(unix.AT_FDCWD, m.path("c"), unix.AT_FDCWD, m.path("d"), unix.RENAME_NOREPLACE); err != unix.EEXIST {
			t.Errorf("RENAME_NOREPLACE over a file: %v", err)
		}
		must(t, unix.Renameat2(unix.AT_FDCWD, m.path("c"), unix.AT_FDCWD, m.path("d"), unix.RENAME_EXCHANGE))
		if got := read(t, m.path("d")); string(got) != "new" {
			t.Errorf("after the exchange d is %q", got)
		}
	})
}

func TestUnlink_OpenFileLivesUntilTheLastClose(t *testing.T) {
	eachMode(t, func(t *testing.T, c *fusetest.Cluster, m *mount) {
		f, err := os.OpenFile(m.path("f"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		must(t, err)
		must(t, os.Remove(m.path("f")))
		_, err = f.WriteAt([]byte("hello"), 100000)
		must(t, err)
		must(t, f.Sync())
		p := make([]byte, 5)
		if _, err := f.ReadAt(p, 100000); err != nil || string(p) != "hello" {
			t.Errorf("read %q, %v", p, err)
		}
		if st, err := f.Stat(); err != nil || st.Size() != 100005 {
			t.Errorf("stat %v, %v", st, err)
		}
		if c.Orphans() != 1 {
			t.Errorf("%d orphans while open", c.Orphans())
		}
		must(t, f.Close())
		within(t, 5*time.Second, "release of the orphan", func() bool { return c.Orphans() == 0 })
	})
}

func TestAppend_TwoDescriptorsNeverOverwriteEachOther(t *testing.T) {
	eachMode(t, func(t *testing.T, c *fusetest.Cluster, m *mount) {
		other := mountOn(t, c)
		var all sync.WaitGroup
		for w, dir := range []string{m.dir, m.dir, other.dir} {
			all.Go(func() {
				f, err := os.OpenFile(filepath.Join(dir, "log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
				if err != nil {
					t.Error(err)
					return
				}
				defer f.Close()
				for i := range 50 {
					if _, err := fmt.Fprintf(f, "writer %d line %02d\n", w, i); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		got := read(t, m.path("log"))
		lines := bytes.Split(bytes.TrimSuffix(got, []byte("\n")), []byte("\n"))
		seen := map[string]int{}
		for _, l := range lines {
			seen[string(l)]++
		}
		if len(lines) != 150 || len(seen) != 150 {
			t.Errorf("%d lines, %d different", len(lines), len(seen))
		}
	})
}

func TestTruncate_ShrinkThenGrowReadsZeros(t *testing.T) {
	eachMode(t, func(t *testing.T, c *fusetest.Cluster, m *mount) {
		want := noise(300000, 4)
		must(t, os.WriteFile(m.path("f"), want, 0o644))
		must(t, os.Truncate(m.path("f"), 100001))
		must(t, os.Truncate(m.path("f"), 250000))
		clear(want[100001:])
		if !bytes.Equal(read(t, m.path("f")), want[:250000]) {
			t.Error("after truncate by name")
		}
		f, err := os.OpenFile(m.path("f"), os.O_RDWR, 0)
		must(t, err)
		defer f.Close()
		_, err = f.WriteAt([]byte("dirty"), 240000)
		must(t, err)
		must(t, f.Truncate(70000))
		must(t, f.Truncate(260000))
		clear(want[70000:])
		got := make([]byte, 260000)
		_, err = f.ReadAt(got, 0)
		must(t, err)
		if !bytes.Equal(got, want[:260000]) {
			t.Error("after truncate of an open file")
		}
		must(t, f.Close())
		if got, _ := c.Content("f"); !bytes.Equal(got, want[:260000]) {
			t.Error("cluster differs")
		}
	})
}

func TestHoles_ReadAsZeros(t *testing.T) {
	eachMode(t, func(t *testing.T, c *fusetest.Cluster, m *mount) {
		f, err := os.OpenFile(m.path("f"), os.O_RDWR|os.O_CREATE, 0o644)
		must(t, err)
		want := make([]byte, 5<<20+7)
		for _, at := range []int{0, 70000, 3<<20 + 1, 5 << 20} {
			copy(want[at:], "island!")
			_, err = f.WriteAt([]byte("island!"), int64(at))
			must(t, err)
		}
		must(t, f.Close())
		if !bytes.Equal(read(t, m.path("f")), want) {
			t.Error("read differs")
		}
		if got, _ := c.Content("f"); !bytes.Equal(got, want) {
			t.Error("cluster differs")
		}
		f, err = os.OpenFile(m.path("f"), os.O_RDWR, 0)
		must(t, err)
		defer f.Close()
		must(t, unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 70000, 3))
		copy(want[70000:], "\x00\x00\x00")
		must(t, f.Sync())
		if got, _ := c.Content("f"); !bytes.Equal(got, want) {
			t.Error("cluster differs after punching a hole")
		}
	})
}

func TestReaddir_NamesThatStayAreListedOnceWhileOthersChange(t *testing.T) {
	const n = 5000
	m := mountOn(t, fusetest.New())
	d := m.path("d")
	must(t, os.Mkdir(d, 0o755))
	for i := range n {
		must(t, syscall.Mknod(filepath.Join(d, fmt.Sprintf("stays%04d", i)), syscall.S_IFREG|0o644, 0))
	}
	stop := make(chan struct{})
	var churn sync.WaitGroup
	churn.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			name := filepath.Join(d, fmt.Sprintf("goes%d", i))
			if err := os.WriteFile(name, nil, 0o644); err != nil {
				t.Error(err)
			}
			if err := os.Remove(name); err != nil {
				t.Error(err)
			}
		}
	})
	for range 3 {
		names, err := os.ReadDir(d)
		must(t, err)
		seen := map[string]int{}
		for _, e := range names {
			seen[e.Name()]++
		}
		for i := range n {
			if k := seen[fmt.Sprintf("stays%04d", i)]; k != 1 {
				t.Fatalf("stays%04d is listed %d times", i, k)
			}
		}
	}
	close(stop)
	churn.Wait()
}

func TestMknod_FifoSocketAndDeviceKeepTheirType(t *testing.T) {
	m := mountOn(t, fusetest.New())
	for name, mode := range map[string]uint32{"fifo": syscall.S_IFIFO, "socket": syscall.S_IFSOCK, "device": syscall.S_IFCHR} {
		must(t, syscall.Mknod(m.path(name), mode|0o600, 0x103))
		var st syscall.Stat_t
		must(t, syscall.Lstat(m.path(name), &st))
		if st.Mode != mode|0o600 {
			t.Errorf("%s has mode %o", name, st.Mode)
		}
		if mode == syscall.S_IFCHR && st.Rdev != 0x103 {
			t.Errorf("device is %x", st.Rdev)
		}
	}
}

func TestWrite_ByAnotherUserClearsSetuid(t *testing.T) {
	m := mountOn(t, fusetest.New())
	must(t, os.WriteFile(m.path("f"), []byte("x"), 0o644))
	must(t, os.Chmod(m.path("f"), os.ModeSetuid|0o777))
	run(t, m.dir, "setpriv", "--reuid", "65534", "--clear-groups", "sh", "-c", "echo y >> f")
	st, err := os.Stat(m.path("f"))
	must(t, err)
	if st.Mode()&os.ModeSetuid != 0 {
		t.Errorf("mode is %v", st.Mode())
	}
}

func TestUtimes_BetweenWriteAndCloseSurvivesTheClose(t *testing.T) {
	eachMode(t, func(t *testing.T, c *fusetest.Cluster, m *mount) {
		f, err := os.Create(m.path("f"))
		must(t, err)
		_, err = f.WriteString("hello")
		must(t, err)
		want := time.Unix(1_000_000_000, 123456789)
		must(t, os.Chtimes(m.path("f"), want, want))
		must(t, f.Close())
		st, err := os.Stat(m.path("f"))
		must(t, err)
		if !st.ModTime().Equal(want) {
			t.Errorf("mtime %v", st.ModTime())
		}
	})
}

func TestXattr_PosixAclIsNotSupportedAndCapabilityIsAnsweredFromMemory(t *testing.T) {
	c := fusetest.New()
	m := mountOn(t, c)
	must(t, os.WriteFile(m.path("f"), nil, 0o644))
	if err := unix.Setxattr(m.path("f"), "system.posix_acl_access", make([]byte, 28), 0); err != unix.EOPNOTSUPP {
		t.Errorf("set ACL: %v", err)
	}
	before := c.Calls("Getxattr")
	if _, err := unix.Getxattr(m.path("f"), "security.capability", nil); err != unix.ENODATA {
		t.Errorf("get capability: %v", err)
	}
	if c.Calls("Getxattr") != before {
		t.Error("the cluster was asked for a capability")
	}
}
