package dev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"

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

// Down unmounts, persists what is dirty, and stops the servers and the local S3 server. What could not be persisted is said and is an error at the end;
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
	f, err := c.Flush(ctx, progress)
	for _, p := range f.Problems {
		c.say("not persisted: %s: %s", p.Path, p.Error)
	}
	if len(f.Problems) > 0 {
		err = errors.Join(err, objcache.Errorf(objcache.IO, "%d files are not persisted; they stay in %s until the next `objcache dev up`", len(f.Problems), c.dir))
	}
	return err
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
