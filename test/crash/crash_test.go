//go:build integration

// Package crash kills the processes of a real cluster while programs work on its mount, and then looks for everything that was acknowledged: through the
// mount, through another one, in the bucket, and by another cluster on the bucket. OBJCACHE_SEED and OBJCACHE_CRASH_SECONDS say which run, and how long.
package crash

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/objcache/objcache/dev"
)

const (
	workers     = 3
	bucket      = "objcache"
	commandMax  = 90 * time.Second // of one dev command: a flush has much to do
	stepMax     = 60 * time.Second // of one operation in the mount, with servers that come back within seconds
	defaultTime = 10 * time.Second
)

// TestMain runs the tests without the signals by which Go preempts goroutines: each may interrupt an operation of the mount, whose outcome is then unknown.
func TestMain(m *testing.M) {
	if os.Getenv(launcherEnv) != "" {
		launch()
		return
	}
	const off = "asyncpreemptoff=1"
	if env := os.Getenv("GODEBUG"); !strings.Contains(env, off) {
		if err := os.Setenv("GODEBUG", strings.TrimPrefix(env+","+off, ",")); err != nil {
			panic(err)
		}
		panic(syscall.Exec("/proc/self/exe", os.Args, os.Environ()))
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "crash")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	programs.dir, programs.done = dir, map[string]bool{}
	return m.Run()
}

// cluster is a cluster of processes in a state directory.
type cluster struct {
	t     *testing.T
	l     *launcher
	path  string // of the program
	state string
}

// programs are built once for each set of tags.
var programs struct {
	sync.Mutex
	dir  string
	done map[string]bool
}

// build builds the program. What has not changed since an earlier run comes from the go command's cache.
func build(t *testing.T, tags string) string {
	t.Helper()
	gw := os.Getenv("OBJCACHE_VERSITYGW")
	if gw == "" {
		t.Fatal("OBJCACHE_VERSITYGW is not set: run `make test`")
	}
	programs.Lock()
	defer programs.Unlock()
	dir := filepath.Join(programs.dir, "with"+tags)
	path := filepath.Join(dir, "objcache")
	if programs.done[tags] {
		return path
	}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-tags", tags, "-o", path, "../../cmd/objcache").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	if err := os.Symlink(gw, filepath.Join(dir, "versitygw")); err != nil {
		t.Fatal(err)
	}
	programs.done[tags] = true
	return path
}

func newCluster(t *testing.T, l *launcher, path string) *cluster {
	c := &cluster{t: t, l: l, path: path, state: filepath.Join(t.TempDir(), "state")}
	t.Cleanup(func() {
		if t.Failed() {
			c.lastLines()
		}
		mounts := []string{c.mnt()}
		if st, err := c.status(); err == nil {
			for _, m := range st.Mounts {
				mounts = append(mounts, m.Mountpoint)
				if t.Failed() && m.PID > 0 { // what waits in it for ever shall end
					_ = syscall.Kill(m.PID, syscall.SIGKILL)
				}
			}
		}
		if t.Failed() { // no time to persist anything
			if _, err := c.run("kill", "server-0", "server-1", "server-2", "s3"); err != nil {
				t.Log(err)
			}
		}
		if _, err := c.run("down", "--purge", "--force"); err != nil {
			t.Log(err)
		}
		for _, m := range mounts {
			_ = unix.Unmount(m, unix.MNT_DETACH) // gone already when all went well
		}
	})
	return c
}

func (c *cluster) mnt() string { return filepath.Join(c.state, "mnt") }

// run runs a dev command.
func (c *cluster) run(args ...string) ([]byte, error) {
	out, err := c.l.run(c.path, append([]string{"dev", "--state", c.state}, args...)...)
	if err != nil {
		return nil, fmt.Errorf("dev %v: %w", args, err)
	}
	return out, nil
}

func (c *cluster) must(args ...string) []byte {
	c.t.Helper()
	out, err := c.run(args...)
	if err != nil {
		c.t.Fatal(err)
	}
	return out
}

func (c *cluster) status() (dev.Status, error) {
	var st dev.Status
	out, err := c.run("status", "-o", "json")
	if err == nil {
		err = json.Unmarshal(out, &st)
	}
	return st, err
}

// lastLines shows the end of every process's log.
func (c *cluster) lastLines() {
	var logs []string
	for _, of := range []string{"servers/*/log", "mounts/*/log"} { // nothing in a mount, which may hang
		some, err := filepath.Glob(filepath.Join(c.state, of))
		if err != nil {
			c.t.Log(err)
		}
		logs = append(logs, some...)
	}
	for _, l := range logs {
		b, err := os.ReadFile(l)
		if err != nil {
			continue
		}
		lines := strings.Split(string(b), "\n")
		c.t.Logf("%s:\n%s", l, strings.Join(lines[max(0, len(lines)-25):], "\n"))
	}
}

// monkey kills and stops processes until ctx ends; everything runs when it returns.
type monkey struct {
	c   *cluster
	rng *rand.Rand
	log []string
}

func (m *monkey) play(ctx context.Context) error {
	for m.pause(ctx, 1500) {
		if err := m.strike(ctx); err != nil {
			return err
		}
	}
	return nil
}

// pause lets the others work for a random time of at most ms; false: it is over.
func (m *monkey) pause(ctx context.Context, ms int) bool {
	timer := time.NewTimer(time.Duration(m.rng.IntN(ms)) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return ctx.Err() == nil
	}
}

func (m *monkey) strike(ctx context.Context) error {
	all := []string{"server-0", "server-1", "server-2"}
	one := all[m.rng.IntN(3)]
	switch k := m.rng.IntN(10); {
	case k < 4:
		return m.kill(ctx, one)
	case k < 6:
		return m.kill(ctx, all...)
	case k < 8:
		return m.kill(ctx, "s3")
	}
	st, err := m.c.status()
	if err != nil {
		return err
	}
	for _, s := range st.Servers {
		if s.Name != one || s.PID == 0 {
			continue
		}
		m.log = append(m.log, "stop "+one+" for a while")
		if err := syscall.Kill(s.PID, syscall.SIGSTOP); err != nil {
			return err
		}
		m.pause(ctx, 2000)
		return syscall.Kill(s.PID, syscall.SIGCONT)
	}
	return nil
}

func (m *monkey) kill(ctx context.Context, names ...string) error {
	m.log = append(m.log, time.Now().Format("05.000 ")+fmt.Sprint("kill ", names))
	if _, err := m.c.run(append([]string{"kill"}, names...)...); err != nil {
		return err
	}
	m.pause(ctx, 700)
	m.log = append(m.log, "start")
	_, err := m.c.run(append([]string{"start"}, names...)...)
	m.log = append(m.log, time.Now().Format("05.000 ")+"started")
	return err
}

// number is a number from the environment, or another one.
func number(t *testing.T, name string, other uint64) uint64 {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return other
	}
	if _, err := fmt.Sscan(s, &other); err != nil {
		t.Fatalf("%s=%q: %v", name, s, err)
	}
	return other
}

func TestCrash_WhatWasAcknowledgedSurvivesKills(t *testing.T) {
	seed := number(t, "OBJCACHE_SEED", 31)
	long := time.Duration(number(t, "OBJCACHE_CRASH_SECONDS", uint64(defaultTime/time.Second))) * time.Second
	t.Logf("seed %d", seed)
	path := build(t, "")
	l := newLauncher(t)
	c := newCluster(t, l, path)
	c.must("up", "--flush-interval", "400ms", "--capacity", "1GiB")
	m := &monkey{c: c, rng: rand.New(rand.NewPCG(seed, 1000))}
	ws := c.workers(seed, false)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d; kills:\n %s", seed, strings.Join(m.log, "\n "))
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	if err := together(ctx, m.play, ws); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d operations, %d kills", acknowledged(ws), len(m.log))
	verify(t, c, path, ws)
}

// together runs the workers beside whoever disturbs them, until that returns or one fails. A worker that hangs is an error too.
func together(ctx context.Context, disturb func(context.Context) error, ws []*worker) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make(chan error, len(ws)+1)
	var wg sync.WaitGroup
	run := func(f func() error) {
		wg.Go(func() {
			err := f()
			if err != nil {
				cancel()
			}
			errs <- err
		})
	}
	for _, w := range ws {
		run(func() error {
			for ctx.Err() == nil {
				if err := w.step(); err != nil {
					return fmt.Errorf("%s: %w", w.top, err)
				}
			}
			return nil
		})
	}
	run(func() error {
		defer cancel()
		return disturb(ctx)
	})
	var first error
	<-ctx.Done()
	late := time.NewTimer(stepMax)
	defer late.Stop()
	for range len(ws) + 1 {
		select {
		case err := <-errs:
			first = errors.Join(first, err)
		case <-late.C:
			return errors.Join(first, fmt.Errorf("an operation hangs for %v although everything runs", stepMax))
		}
	}
	return first
}

// verify compares everything with the models.
func verify(t *testing.T, c *cluster, path string, ws []*worker) {
	t.Helper()
	each := func(what, top string, attributes bool) {
		t.Helper()
		for i, w := range ws {
			if err := w.compare(filepath.Join(top, fmt.Sprintf("w%d", i)), attributes); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		if t.Failed() {
			t.FailNow()
		}
	}
	each("the same mount", filepath.Join(c.mnt(), bucket), true)
	second := t.TempDir()
	c.must("mount", second)
	each("another mount", filepath.Join(second, bucket), true)
	c.must("flush")
	each("the bucket", filepath.Join(c.state, "s3", "data", bucket), false)
	if left, err := filepath.Glob(filepath.Join(c.state, "s3", "data", bucket, ".objcache", "moving", "*")); err != nil || len(left) > 0 {
		t.Errorf("left on a detour: %q, %v", left, err)
	}

	// Another cluster, which knows only the bucket.
	buckets := filepath.Join(c.state, "buckets.yaml")
	c.must("umount", second)
	c.must("umount", c.mnt())
	c.must("stop", "server-0", "server-1", "server-2")
	other := newCluster(t, c.l, path)
	other.must("up", "--buckets", buckets, "--servers", "2", "--capacity", "1GiB")
	each("another cluster", filepath.Join(other.mnt(), bucket), true)
	other.must("down")
}
