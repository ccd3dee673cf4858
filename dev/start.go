package dev

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	startDeadline = 60 * time.Second // of one process
	stopDeadline  = 60 * time.Second // of one process: a mount flushes what is pending
)

// stages groups the members by what needs what: all of a stage start at once, because servers may wait for each other.
func stages(ms []member) [][]member {
	order := []func(member) bool{
		func(m member) bool { _, ok := m.(s3Member); return ok },
		func(m member) bool { _, ok := m.(serverMember); return ok },
		func(m member) bool { _, ok := m.(mountMember); return ok },
	}
	var out [][]member
	for _, is := range order {
		if stage := slices.DeleteFunc(slices.Clone(ms), func(m member) bool { return !is(m) }); len(stage) > 0 {
			out = append(out, stage)
		}
	}
	return out
}

// startAll starts those that do not run and returns when all answer. On failure what it started is stopped again.
func (c *Cluster) startAll(ctx context.Context, ms []member) error {
	if err := c.setClean(false); err != nil {
		return err
	}
	var started []member
	for _, stage := range stages(ms) {
		now, err := c.startStage(ctx, stage)
		started = append(started, now...)
		if err != nil {
			return errors.Join(err, c.undo(started))
		}
	}
	return nil
}

func (c *Cluster) startStage(ctx context.Context, stage []member) ([]member, error) {
	var mu struct {
		sync.Mutex
		started []member
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, m := range stage {
		if p := read(m.dir()); p.running() {
			c.say("%s is running (pid %d)", m.name(), p.PID)
			continue
		}
		g.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, startDeadline)
			defer cancel()
			if err := m.start(ctx); err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			mu.started = append(mu.started, m)
			c.say("%s started (pid %d)", m.name(), read(m.dir()).PID)
			return nil
		})
	}
	err := g.Wait()
	return mu.started, err
}

// undo stops what a failed call started, last first.
func (c *Cluster) undo(started []member) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopDeadline)
	defer cancel()
	var errs error
	for _, m := range slices.Backward(started) {
		errs = errors.Join(errs, end(ctx, m, syscall.SIGTERM))
	}
	return errs
}

// end signals a member's process, waits until it is gone and cleans up behind it. One that ignores SIGTERM until ctx ends is killed, and that is an error.
func end(ctx context.Context, m member, s syscall.Signal) error {
	p := read(m.dir())
	if err := p.signal(s); err != nil {
		return err
	}
	err := p.gone(ctx)
	if err != nil {
		err = fmt.Errorf("%s did not stop and was killed (see %s/%s): %w", m.name(), m.dir(), logName, errors.Join(err, p.kill()))
	}
	return errors.Join(err, m.ended(context.WithoutCancel(ctx)))
}

// Start starts a process by name and returns when it answers. One that runs is left alone.
func (c *Cluster) Start(ctx context.Context, name string) error {
	m, err := c.member(name)
	if err != nil {
		return err
	}
	return c.startAll(ctx, []member{m})
}

// Stop ends a process by name (SIGTERM): a mount unmounts and flushes, a server keeps its state. It returns when the process is gone.
func (c *Cluster) Stop(ctx context.Context, name string) error {
	return c.end(ctx, name, syscall.SIGTERM)
}

// Kill ends a process by name with SIGKILL and returns when it is gone. A mountpoint whose process was killed is taken out of the tree only by Start,
// so that programs see what they would see after a crash.
func (c *Cluster) Kill(ctx context.Context, name string) error {
	return c.end(ctx, name, syscall.SIGKILL)
}

func (c *Cluster) end(ctx context.Context, name string, s syscall.Signal) error {
	m, err := c.member(name)
	if err != nil {
		return err
	}
	p := read(m.dir())
	if !p.running() {
		c.say("%s is not running", name)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, stopDeadline)
	defer cancel()
	if s == syscall.SIGKILL {
		if err := p.signal(s); err != nil {
			return err
		}
		err = p.gone(ctx)
	} else {
		err = end(ctx, m, s)
	}
	if err == nil {
		c.say("%s is gone (pid %d)", name, p.PID)
	}
	return err
}
