package dev

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/objcache/objcache"
)

// Mount mounts the cluster at one more directory, with a node-local cache of its own. It returns when the mount answers.
func (c *Cluster) Mount(ctx context.Context, dir string) error {
	if c.isNew() {
		return errNotUp(c.dir)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if i := c.mountAt(dir); i >= 0 {
		return c.Start(ctx, c.spec.Mounts[i].name())
	}
	m := mountSpec{Number: c.freeNumber(), Mountpoint: dir}
	if err := c.checkMountpoint(m); err != nil {
		return err
	}
	before := c.spec
	c.spec.Mounts = append(slices.Clone(c.spec.Mounts), m)
	err = c.saveSpec()
	if err == nil {
		err = c.startAll(ctx, []member{mountMember{c, m}})
	}
	if err != nil {
		c.spec = before
		return errors.Join(err, c.saveSpec(), os.RemoveAll(mountMember{c, m}.dir()))
	}
	return nil
}

// Umount unmounts a directory, or a mount by its name, and forgets it. Its node-local cache stays for the next mount
// that gets its number.
func (c *Cluster) Umount(ctx context.Context, dir string) error {
	i := slices.IndexFunc(c.spec.Mounts, func(m mountSpec) bool { return m.name() == dir })
	if i < 0 {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return err
		}
		if i = c.mountAt(abs); i < 0 {
			return objcache.Errorf(objcache.NotExist, "mount of this cluster at %s (there are: %s)", dir, strings.Join(c.mountpoints(), ", "))
		}
	}
	m := mountMember{c, c.spec.Mounts[i]}
	if err := unix.Unmount(m.spec.Mountpoint, 0); errors.Is(err, unix.EBUSY) {
		return objcache.Errorf(objcache.Unavailable, "%s is in use (`fuser -vm %s` says by whom)", m.spec.Mountpoint, m.spec.Mountpoint)
	}
	if err := c.Stop(ctx, m.name()); err != nil {
		return err
	}
	if err := m.ended(ctx); err != nil {
		return err
	}
	c.spec.Mounts = slices.Delete(slices.Clone(c.spec.Mounts), i, i+1)
	return c.saveSpec()
}

func (c *Cluster) mountAt(dir string) int {
	return slices.IndexFunc(c.spec.Mounts, func(m mountSpec) bool { return m.Mountpoint == dir })
}

func (c *Cluster) mountpoints() []string {
	var ps []string
	for _, m := range c.spec.Mounts {
		ps = append(ps, m.Mountpoint)
	}
	return ps
}

func (c *Cluster) freeNumber() int {
	n := 0
	for slices.ContainsFunc(c.spec.Mounts, func(m mountSpec) bool { return m.Number == n }) {
		n++
	}
	return n
}

func errNotUp(dir string) error {
	return objcache.Errorf(objcache.NotExist, "cluster in %s (make one with `objcache dev up`)", dir)
}
