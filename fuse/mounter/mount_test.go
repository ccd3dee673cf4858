//go:build integration

package mounter_test

import (
	"context"
	"fmt"
	"github.com/objcache/objcache/test/wait"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/objcache/objcache/fuse/fusetest"
	"github.com/objcache/objcache/fuse/mounter"
)

const (
	unmountDeadline = 20 * time.Second // of every unmount of a test
	mountLifetime   = 2 * time.Minute
)

var discard = slog.New(slog.DiscardHandler)

type mount struct {
	*mounter.Live
	dir     string
	cache   string
	backend *fusetest.Backend
	ended   bool
}

// mountOn mounts a cluster; the test unmounts it at its end, also when it fails.
func mountOn(t testing.TB, c *fusetest.Cluster, change ...func(*mounter.Config)) *mount {
	t.Helper()
	base := t.TempDir()
	cfg := mounter.Default()
	cfg.Mountpoint, cfg.CacheDir = filepath.Join(base, "mnt"), filepath.Join(base, "cache")
	for _, f := range change {
		f(&cfg)
	}
	if err := os.MkdirAll(cfg.Mountpoint, 0o755); err != nil {
		t.Fatal(err)
	}
	b := c.Backend()
	log := discard
	if testing.Verbose() {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	l, err := mounter.Mount(t.Context(), cfg, b, log)
	if err != nil {
		t.Fatal(err)
	}
	m := &mount{Live: l, dir: cfg.Mountpoint, cache: cfg.CacheDir, backend: b}
	// A program that hangs on the mount, which may be this one, could not be ended by the test's own timeout.
	hung := time.AfterFunc(mountLifetime, func() {
		t.Errorf("%s lives longer than %v and is cut off", m.dir, mountLifetime)
		_ = l.Abort()
	})
	t.Cleanup(func() {
		hung.Stop()
		if err := m.end(); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return m
}

func (m *mount) end() error {
	if m.ended {
		return nil
	}
	m.ended = true
	ctx, cancel := context.WithTimeout(context.Background(), unmountDeadline)
	defer cancel()
	if err := m.Unmount(ctx); err != nil {
		return err
	}
	if n := m.backend.Opens(); n != 0 {
		return fmt.Errorf("%d opens are left at the cluster", n)
	}
	return nil
}

func (m *mount) path(name string) string { return filepath.Join(m.dir, name) }

// within fails the test when cond does not come true in time.
func within(t testing.TB, d time.Duration, what string, cond func() bool) {
	t.Helper()
	wait.Until(t, d, what, cond)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
