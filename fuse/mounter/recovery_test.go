//go:build integration

package mounter_test

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/fuse/fusetest"
	"github.com/objcache/objcache/fuse/mounter"
)

// kill ends a mount as kill -9 would, and its session at the cluster.
func (m *mount) kill(t *testing.T) {
	t.Helper()
	m.ended = true
	must(t, m.Kill())
	m.backend.Expire()
}

func withCache(dir string) func(*mounter.Config) {
	return func(c *mounter.Config) { c.CacheDir = dir }
}

func TestKill_WhatWasWrittenIsCommittedByTheNextMount(t *testing.T) {
	c := fusetest.New()
	m := mountOn(t, c)
	want := noise(9<<20+11, 6)
	must(t, os.WriteFile(m.path("f"), want[:1000], 0o644))
	f, err := os.OpenFile(m.path("f"), os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	_, err = f.Write(want)
	must(t, err)
	_, err = f.WriteAt([]byte("random"), 7<<20)
	must(t, err)
	copy(want[7<<20:], "random")
	m.kill(t)
	if got, _ := c.Content("f"); len(got) != 1000 {
		t.Fatalf("cluster has %d bytes before the recovery", len(got))
	}
	n := mountOn(t, c, withCache(m.cache))
	if got := read(t, n.path("f")); !bytes.Equal(got, want) {
		t.Error("what was acknowledged is lost")
	}
}

func TestKill_WritesThatMeetANewerVersionAreSetAside(t *testing.T) {
	c := fusetest.New()
	m, other := mountOn(t, c), mountOn(t, c)
	must(t, os.WriteFile(m.path("f"), []byte("base base base"), 0o644))
	f, err := os.OpenFile(m.path("f"), os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	_, err = f.WriteAt([]byte("MINE"), 5)
	must(t, err)
	must(t, os.WriteFile(other.path("f"), []byte("their new text"), 0o644))
	m.kill(t)
	n := mountOn(t, c, withCache(m.cache))
	if got := read(t, n.path("f")); string(got) != "their new text" {
		t.Errorf("f is %q", got)
	}
	names, err := os.ReadDir(n.dir)
	must(t, err)
	var found []string
	for _, e := range names {
		if strings.HasPrefix(e.Name(), "f.objcache-conflict-") {
			found = append(found, string(read(t, n.path(e.Name()))))
		}
	}
	if len(found) != 1 || found[0] != "theirMINE text" {
		t.Errorf("conflict files hold %q", found)
	}
}

func TestKill_AfterTheFlushWasCommittedNothingIsSetAside(t *testing.T) {
	c := fusetest.New()
	m := mountOn(t, c)
	f, err := os.Create(m.path("f"))
	must(t, err)
	defer f.Close()
	_, err = f.WriteString("committed, but nobody heard")
	must(t, err)
	// The cluster commits; the answer never comes.
	done := make(chan struct{})
	c.SetAfter(func(ctx context.Context, op string, _ objcache.Ino) error {
		if op != "Flush" {
			return nil
		}
		close(done)
		<-ctx.Done()
		return ctx.Err()
	})
	go func() {
		if err := f.Sync(); err == nil {
			t.Error("fsync succeeded although the mount was killed under it")
		}
	}()
	<-done
	c.SetAfter(nil)
	m.kill(t)
	n := mountOn(t, c, withCache(m.cache))
	names, err := os.ReadDir(n.dir)
	must(t, err)
	if len(names) != 1 || string(read(t, n.path("f"))) != "committed, but nobody heard" {
		t.Errorf("%d names", len(names))
	}
}

func TestUnmount_FlushesWhatIsPending(t *testing.T) {
	c := fusetest.New()
	m := mountOn(t, c)
	f, err := os.Create(m.path("f"))
	must(t, err)
	_, err = f.WriteString("x")
	must(t, err)
	must(t, f.Close())
	must(t, m.end())
	if got, _ := c.Content("f"); string(got) != "x" {
		t.Errorf("cluster has %q", got)
	}
	if n := m.backend.Opens(); n != 0 {
		t.Errorf("%d opens are left at the cluster", n)
	}
}

func TestUnmount_BusyMountIsCutOffAtTheDeadlineAndLosesNothing(t *testing.T) {
	c := fusetest.New()
	m := mountOn(t, c)
	f, err := os.Create(m.path("f"))
	must(t, err)
	defer f.Close()
	_, err = f.WriteString("pending")
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	m.ended = true
	if err := m.Unmount(ctx); objcache.KindOf(err) != objcache.Unavailable {
		t.Errorf("unmount: %v", err)
	}
	n := mountOn(t, c, withCache(m.cache))
	if got := read(t, n.path("f")); string(got) != "pending" {
		t.Errorf("f is %q", got)
	}
}

func TestMount_SaysInOneLineWhyItCannot(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(dir+"/file", nil, 0o644))
	must(t, os.MkdirAll(dir+"/full/x", 0o755))
	mounted := mountOn(t, fusetest.New())
	for path, want := range map[string]string{
		dir + "/none": "mountpoint " + dir + "/none: does not exist",
		dir + "/file": "mountpoint " + dir + "/file: not a directory",
		dir + "/full": "mountpoint " + dir + "/full: directory not empty",
		mounted.dir:   "mountpoint " + mounted.dir + " is already a mountpoint: already exists",
		"relative":    `mountpoint "relative" is not an absolute path: invalid argument`,
	} {
		cfg := mounter.Default()
		cfg.Mountpoint, cfg.CacheDir = path, dir+"/cache"
		_, err := mounter.Mount(t.Context(), cfg, fusetest.New().Backend(), discard)
		if err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
	cfg := mounter.Default()
	cfg.Mountpoint, cfg.CacheDir = dir+"/full/x", mounted.cache
	if _, err := mounter.Mount(t.Context(), cfg, fusetest.New().Backend(), discard); objcache.KindOf(err) != objcache.Unavailable {
		t.Errorf("a cache directory in use: %v", err)
	}
}

func TestMount_ReadOnlyRefusesWrites(t *testing.T) {
	c := fusetest.New()
	must(t, os.WriteFile(mountOn(t, c).path("f"), []byte("x"), 0o644))
	m := mountOn(t, c, func(c *mounter.Config) { c.ReadOnly = true })
	if err := os.WriteFile(m.path("g"), nil, 0o644); err == nil || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("write: %v", err)
	}
	if got := read(t, m.path("f")); string(got) != "x" {
		t.Errorf("read %q", got)
	}
}
