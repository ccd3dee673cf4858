package dev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/objcache/objcache"
)

// DownRequest says how to take the cluster down.
type DownRequest struct {
	Purge bool // delete the state directory
	Force bool // also when the only copy of something is in it
	// Progress is told of persisting; it may be nil.
	Progress func(Flushed)
}

// Down unmounts, persists what is dirty (until ctx ends or external storage takes nothing any more), and stops the servers and the local S3 server. What could not be persisted is said and is an error at the end;
// it stays in the state directory. Purge deletes that directory; while it holds the only copy of a file of a bucket elsewhere, only with Force.
func (c *Cluster) Down(ctx context.Context, r DownRequest) error {
	if err := c.stopStage(ctx, func(m member) bool { _, ok := m.(mountMember); return ok }); err != nil {
		return err
	}
	// With the local S3 server, Purge deletes the bucket too: there is nothing to save.
	var left error
	if !c.isNew() && !(r.Purge && (r.Force || c.spec.S3 != nil)) {
		left = c.persist(ctx, r.Progress)
	}
	ctx = context.WithoutCancel(ctx) // who interrupts persisting still wants the processes stopped in order
	if r.Purge && left != nil {
		return fmt.Errorf("not purged (--force deletes it nevertheless): %w", left)
	}
	if left == nil && !c.isNew() && !r.Purge {
		if err := c.setClean(true); err != nil {
			return err
		}
	}
	for _, is := range []func(member) bool{
		func(m member) bool { _, ok := m.(serverMember); return ok },
		func(m member) bool { _, ok := m.(s3Member); return ok },
	} {
		if err := c.stopStage(ctx, is); err != nil {
			return errors.Join(left, err)
		}
	}
	if r.Purge {
		return c.purge()
	}
	return left
}

func (c *Cluster) persist(ctx context.Context, progress func(Flushed)) error {
	if c.spec.Clean {
		return nil
	}
	f, err := c.flushUntilStuck(ctx, progress)
	if err != nil {
		f.Problems = append(f.Problems, c.problems()...)
	}
	for _, p := range f.Problems {
		c.say("not persisted: %s: %s", p.Path, p.Error)
	}
	if len(f.Problems) > 0 {
		err = errors.Join(err, objcache.Errorf(objcache.IO, "%d files are not persisted; they stay in %s until the next `objcache dev up`", len(f.Problems), c.dir))
	}
	return err
}

// stuckAfter is how long persisting may bring no file to external storage before Down goes on without.
const stuckAfter = 45 * time.Second

func (c *Cluster) flushUntilStuck(ctx context.Context, progress func(Flushed)) (Flushed, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	stuck := objcache.Errorf(objcache.Unavailable, "nothing reached external storage for %v", stuckAfter)
	timer := time.AfterFunc(stuckAfter, func() { cancel(stuck) })
	defer timer.Stop()
	defer cancel(nil)
	var done uint64
	f, err := c.Flush(ctx, func(f Flushed) {
		if f.FilesDone > done {
			done = f.FilesDone
			timer.Reset(stuckAfter)
		}
		if progress != nil {
			progress(f)
		}
	})
	if err != nil && errors.Is(context.Cause(ctx), stuck) {
		err = objcache.Errorf(objcache.Unavailable, "%d of %d files persisted, the rest stays in %s: %w", f.FilesDone, f.FilesTotal, c.dir, stuck)
	}
	return f, err
}

// problems are what the servers that answer say they could not persist.
func (c *Cluster) problems() []Problem {
	var ps []Problem
	for _, spec := range c.spec.Servers {
		s := serverMember{c, spec}
		if !read(s.dir()).running() {
			continue
		}
		r, err := s.ask(context.Background()) // has a deadline of its own; the caller's context may have ended
		if err != nil {
			continue // it cannot be asked, and the flush has said so
		}
		for _, p := range r.GetProblems() {
			ps = append(ps, Problem{p.GetPath(), p.GetError()})
		}
	}
	return ps
}

// setClean records whether the state directory holds the only copy of nothing.
func (c *Cluster) setClean(clean bool) error {
	if c.spec.Clean == clean {
		return nil
	}
	c.spec.Clean = clean
	return c.saveSpec()
}

// stopStage stops the members that is picks, all at once.
func (c *Cluster) stopStage(ctx context.Context, is func(member) bool) error {
	ctx, cancel := context.WithTimeout(ctx, stopDeadline)
	defer cancel()
	var g errgroup.Group
	for _, m := range slices.DeleteFunc(c.members(), func(m member) bool { return !is(m) }) {
		p := read(m.dir())
		g.Go(func() error {
			if !p.running() {
				return m.ended(ctx)
			}
			if err := end(ctx, m, syscall.SIGTERM); err != nil {
				return err
			}
			c.say("%s stopped", m.name())
			return nil
		})
	}
	return g.Wait()
}

// purge deletes the state directory, whose marker Open has seen. It deletes nothing while something is mounted below it.
func (c *Cluster) purge() error {
	if _, err := os.Stat(filepath.Join(c.dir, markerName)); err != nil {
		return objcache.Errorf(objcache.Invalid, "%s was not made by `objcache dev up` and is not deleted: %w", c.dir, err)
	}
	below, err := mountsBelow(c.dir)
	if err != nil {
		return err
	}
	if len(below) > 0 {
		return objcache.Errorf(objcache.Invalid, "%s is not deleted: something is mounted at %s", c.dir, below[0])
	}
	if err := os.RemoveAll(c.dir); err != nil {
		return fmt.Errorf("purge: %w", err)
	}
	c.say("deleted %s", c.dir)
	return nil
}
