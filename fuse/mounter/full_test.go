//go:build integration

package mounter_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/objcache/objcache/fuse/fusetest"
)

// tinyDisk is a directory of 16 MiB.
func tinyDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=16m"))
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestFullDisk_OfTheCacheReadsGoOnAndWritersAreTold(t *testing.T) {
	c := fusetest.New()
	roomy := mountOn(t, c)
	big := noise(48<<20+17, 1)
	must(t, os.WriteFile(roomy.path("big"), big, 0o644))
	for i := range 10 {
		must(t, os.WriteFile(roomy.path(fmt.Sprint("f", i)), noise(4<<20, uint64(i)), 0o644))
	}
	disk := tinyDisk(t)
	m := mountOn(t, c, withCache(filepath.Join(disk, "cache")))
	if !bytes.Equal(read(t, m.path("big")), big) {
		t.Error("a file larger than the disk of the cache reads differently")
	}
	for i := range 10 {
		if !bytes.Equal(read(t, m.path(fmt.Sprint("f", i))), noise(4<<20, uint64(i))) {
			t.Errorf("file %d differs", i)
		}
	}
	if err := os.WriteFile(m.path("w"), noise(32<<20, 2), 0o644); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("32 MiB into a cache of 16: %v", err)
	}
	must(t, os.Remove(m.path("w")))
	within(t, 5*time.Second, "the writes of the removed file give their room back", func() bool {
		var st unix.Statfs_t
		must(t, unix.Statfs(disk, &st))
		return int64(st.Bavail)*st.Bsize >= 8<<20
	})
	must(t, os.WriteFile(m.path("small"), noise(1<<20, 3), 0o644))
	if !bytes.Equal(read(t, roomy.path("small")), noise(1<<20, 3)) {
		t.Error("what was written after the disk had been full differs")
	}
	if !bytes.Equal(read(t, m.path("big")), big) {
		t.Error("the large file reads differently")
	}
}
