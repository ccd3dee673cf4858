//go:build integration

package crash

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/objcache/objcache/failpoint"
)

// diary is what one program has written to a mount whose process may be killed: its files, each as far as the mount has acknowledged it.
type diary struct {
	rng   *rand.Rand
	top   string
	kinds int // which kind of file is the first
	files []*entry
}

// entry is one file: byte i is anything that was not acknowledged where known[i] is false.
type entry struct {
	name  string
	body  []byte
	known []bool
}

func (e *entry) wrote(p []byte, off int) {
	for n := off + len(p); len(e.body) < n; {
		e.body, e.known = append(e.body, 0), append(e.known, true)
	}
	copy(e.body[off:], p)
	for i := range p {
		e.known[off+i] = true
	}
}

// write makes one more file; the error is the mount's end.
func (d *diary) write() error {
	e := &entry{name: fmt.Sprintf("f%d", len(d.files))}
	flags := os.O_CREATE | os.O_WRONLY | os.O_EXCL
	kind := (d.kinds + len(d.files)) % 4
	if kind == 0 {
		flags |= os.O_APPEND
	}
	f, err := os.OpenFile(filepath.Join(d.top, e.name), flags, 0o644)
	if err != nil {
		return err
	}
	d.files = append(d.files, e)
	switch kind {
	case 0, 1:
		err = d.pieces(f, e, 6, func(i int) int { return i * 3000 })
	case 2: // more pieces apart from each other than a slot of the sidecars has room for
		err = d.pieces(f, e, 300, func(i int) int { return i * 8000 })
	case 3: // passed by a sequential writer: staged before the close
		for i := 0; i < 6 && err == nil; i++ {
			err = d.piece(f, e, 1<<20, i<<20)
		}
	}
	if err == nil && d.rng.IntN(2) == 0 {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func (d *diary) pieces(f *os.File, e *entry, n int, at func(int) int) error {
	for i := range n {
		if err := d.piece(f, e, 3000, at(i)); err != nil {
			return err
		}
	}
	return nil
}

// piece writes one piece; one that fails may be there or not, as far as the file goes.
func (d *diary) piece(f *os.File, e *entry, n, off int) error {
	p := random(d.rng, n)
	_, err := unix.Pwrite(int(f.Fd()), p, int64(off)) // with O_APPEND: at the end, which is there
	if err == nil {
		e.wrote(p, off)
	}
	return err
}

// compare looks for every acknowledged byte.
func (d *diary) compare(top string) error {
	for i, e := range d.files {
		got, err := os.ReadFile(filepath.Join(top, e.name))
		if err != nil {
			return err
		}
		if len(got) < len(e.body) || i < len(d.files)-1 && len(got) != len(e.body) {
			return fmt.Errorf("%s has %d bytes, %d were acknowledged", e.name, len(got), len(e.body))
		}
		if bytes.Equal(got[:len(e.body)], e.body) {
			continue
		}
		for j := range e.body {
			if e.known[j] && got[j] != e.body[j] {
				return fmt.Errorf("%s of %d bytes differs at %d", e.name, len(got), j)
			}
		}
	}
	return nil
}

// One mount is killed at each of its points; the next with the same cache directory commits what was acknowledged, and another mount reads it.
func TestFailpoints_WhatAKilledMountAcknowledgedIsCommittedByTheNext(t *testing.T) {
	seed := number(t, "OBJCACHE_SEED", 58)
	t.Parallel()
	path := build(t, "failpoints")
	c := newCluster(t, newLauncher(t), path)
	c.must("up", "--flush-interval", "400ms", "--capacity", "1GiB")
	mnt := t.TempDir()
	c.must("mount", mnt)
	st, err := c.status()
	if err != nil {
		t.Fatal(err)
	}
	v, err := c.victim(st, "mount-1")
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(seed, 3000))
	began, kills, files := time.Now(), 0, 0
	walk := func(p failpoint.Info, verb string, strike func(context.Context, *victim, failpoint.Info, *diary) error) {
		at := time.Now()
		d := &diary{rng: rng, kinds: rng.IntN(4), top: filepath.Join(mnt, bucket, p.Name+"-"+verb)}
		err := os.Mkdir(d.top, 0o755)
		if err == nil {
			err = strike(t.Context(), v, p, d)
		}
		if err == nil && verb == "kill" {
			kills++
			err = v.startByDev("")
		}
		if err != nil {
			t.Fatalf("%s at %s: %v", verb, p.Name, err)
		}
		if err := d.compare(filepath.Join(c.mnt(), bucket, filepath.Base(d.top))); err != nil {
			t.Errorf("%s at %s (%s): %v", verb, p.Name, p.Text, err)
		}
		files += len(d.files)
		t.Logf("%s at %s: %d files, %v", verb, p.Name, len(d.files), time.Since(at).Round(time.Millisecond))
	}
	var during []failpoint.Info
	for _, p := range failpoint.All() {
		switch p.In {
		case failpoint.Mount:
			during = append(during, p)
			walk(p, "kill", killMountAt)
		case failpoint.MountStart:
			walk(p, "kill", killMountAt)
		}
	}
	rng.Shuffle(len(during), func(i, j int) { during[i], during[j] = during[j], during[i] })
	if !long() {
		during = during[:2]
	}
	for _, p := range during {
		walk(p, "stop", stopMountAt)
	}
	t.Logf("seed %d: a mount's failpoints walked, %d kills, %d stops, %d files checked through another mount, %v", seed, kills, len(during), files,
		time.Since(began).Round(time.Second))
}

// killMountAt writes to the mount until its process has died at a point. A point of the start is passed by the next process.
func killMountAt(ctx context.Context, v *victim, p failpoint.Info, d *diary) error {
	first := p
	if p.In == failpoint.MountStart {
		first = failpoint.Info{Name: "mount.flush.before"}
	}
	if err := v.arm(ctx, fmt.Sprintf("%s=kill@%d", first.Name, 1+d.rng.IntN(3))); err != nil {
		return err
	}
	var err error
	for n := 0; err == nil; n++ {
		if n == 40 {
			return fmt.Errorf("nothing that is written to the mount comes to %s (%s)", first.Name, first.Text)
		}
		err = d.write()
	}
	if yes, serr := v.at(first); serr != nil || !yes {
		return errors.Join(err, serr)
	}
	if yes, err := within(ctx, 10*time.Second, v.dead); err != nil || !yes {
		return errors.Join(err, fmt.Errorf("the mount was to die: %v", yes))
	}
	if first == p {
		return nil
	}
	serr := v.startByDev(p.Name + "=kill")
	if yes, err := v.at(p); err != nil || !yes {
		return errors.Join(err, serr)
	}
	_, err = within(ctx, 10*time.Second, v.dead)
	return err
}

// stopMountAt writes to the mount until its process has stopped at a point and gone on. No write fails.
func stopMountAt(ctx context.Context, v *victim, p failpoint.Info, d *diary) error {
	if err := v.arm(ctx, fmt.Sprintf("%s=stop@%d", p.Name, 1+d.rng.IntN(3))); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	long := time.Second + time.Duration(d.rng.IntN(int(stopMax()-time.Second)))
	over := make(chan error, 1)
	go func() {
		yes, err := within(ctx, time.Minute, v.stopped)
		if err == nil && !yes {
			err = fmt.Errorf("nothing that is written to the mount comes to %s (%s)", p.Name, p.Text)
		}
		if err == nil {
			_, err = within(ctx, long, never)
			err = errors.Join(err, v.signal(syscall.SIGCONT))
		}
		over <- err
	}()
	for {
		select {
		case err := <-over:
			return errors.Join(err, d.write())
		default:
		}
		if err := d.write(); err != nil {
			cancel()
			return errors.Join(err, <-over)
		}
	}
}

// at reports whether the process has died at a point since it was armed.
func (v *victim) at(p failpoint.Info) (bool, error) {
	points, err := v.struck("kill")
	return slices.Contains(points, p.Name), err
}
