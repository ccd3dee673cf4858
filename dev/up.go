package dev

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strconv"

	"sigs.k8s.io/yaml"

	"github.com/objcache/objcache"
)

// UpRequest says what to bring up.
type UpRequest struct {
	Settings Settings // Cluster.Settings with the user's changes
	Buckets  []Bucket // empty: the local S3 server
	Bucket   string   // name of the local S3 server's bucket
	DirName  string   // its directory
	Mount    string   // of the first mount; empty: mnt in the state directory
}

// Up makes the cluster or starts what does not run, and returns when the mounts answer.
// A failed Up stops what it has started; a cluster that it has just made is forgotten again.
func (c *Cluster) Up(ctx context.Context, r UpRequest) error {
	before := c.spec
	if err := c.plan(r); err != nil {
		c.spec = before
		return err
	}
	err := c.checkAll(ctx)
	if err == nil {
		err = c.saveSpec()
	}
	if err == nil {
		err = c.startAll(ctx, c.members())
	}
	if err != nil {
		c.spec = before
		return errors.Join(err, c.restoreSpec())
	}
	if !c.spec.Formed {
		c.spec.Formed = true
		return c.saveSpec()
	}
	return nil
}

func (c *Cluster) isNew() bool { return len(c.spec.Servers) == 0 }

// restoreSpec undoes saveSpec of a failed Up. Of a cluster that was to be made only the logs stay.
func (c *Cluster) restoreSpec() error {
	if !c.isNew() {
		return c.saveSpec()
	}
	var errs error
	for _, pattern := range []string{specName, bucketsName, "servers/*/state", "mounts/*/cache", "s3/data", "s3/sidecar"} {
		paths, err := filepath.Glob(filepath.Join(c.dir, pattern))
		errs = errors.Join(errs, err)
		for _, p := range paths {
			errs = errors.Join(errs, os.RemoveAll(p))
		}
	}
	return errs
}

// plan turns the request into the spec.
func (c *Cluster) plan(r UpRequest) error {
	if err := r.Settings.Validate(); err != nil {
		return err
	}
	if c.isNew() {
		return c.planNew(r)
	}
	if err := c.planSettings(r.Settings); err != nil {
		return err
	}
	if err := c.samePlace(r); err != nil {
		return err
	}
	if len(c.spec.Mounts) == 0 {
		c.spec.Mounts = []mountSpec{c.firstMount(r)}
	}
	return nil
}

func (c *Cluster) planNew(r UpRequest) error {
	s := spec{Cluster: "dev-" + rand.Text()[:8], Settings: r.Settings, Buckets: r.Buckets}
	if s.Settings.CapacityBytes == 0 {
		n, err := share(c.dir, s.Settings.Servers)
		if err != nil {
			return err
		}
		s.Settings.CapacityBytes = n
	}
	addrs, err := FreeAddresses(2*s.Settings.Servers + 1)
	if err != nil {
		return err
	}
	for i := range s.Settings.Servers {
		s.Servers = append(s.Servers, serverSpec{Name: "server-" + strconv.Itoa(i), Address: addrs[2*i], Metrics: addrs[2*i+1]})
	}
	if len(r.Buckets) == 0 {
		s.S3 = &s3Spec{Address: addrs[len(addrs)-1], AccessKey: "dev" + rand.Text()[:13], SecretKey: rand.Text()}
		s.Buckets = []Bucket{{
			DirName: r.DirName, BucketName: r.Bucket, Endpoint: s.S3.endpoint(), Region: "us-east-1", AccessKey: s.S3.AccessKey, SecretKey: s.S3.SecretKey,
		}}
	}
	s.Mounts = []mountSpec{c.firstMount(r)}
	c.spec = s
	return nil
}

func (c *Cluster) firstMount(r UpRequest) mountSpec {
	if r.Mount == "" {
		return mountSpec{Mountpoint: filepath.Join(c.dir, "mnt"), Own: true}
	}
	return mountSpec{Mountpoint: r.Mount}
}

// Settings are the cluster's, or the defaults when it is still to be made.
func (c *Cluster) Settings() Settings {
	if c.isNew() {
		return DefaultSettings()
	}
	return c.spec.Settings
}

// planSettings takes changed settings over, if nothing runs that was started with others.
func (c *Cluster) planSettings(want Settings) error {
	if want.CapacityBytes == 0 {
		want.CapacityBytes = c.spec.Settings.CapacityBytes
	}
	switch {
	case want == c.spec.Settings:
		return nil
	case want.Servers != c.spec.Settings.Servers:
		return objcache.Errorf(objcache.Invalid, "--servers %d: this cluster was made with %d (`objcache dev down --purge` first)", want.Servers, c.spec.Settings.Servers)
	}
	for _, m := range c.members() {
		if _, isS3 := m.(s3Member); !isS3 && read(m.dir()).running() {
			return objcache.Errorf(objcache.Invalid, "%s runs with other settings (`objcache dev down` first)", m.name())
		}
	}
	c.spec.Settings = want
	return nil
}

// samePlace refuses a request for other buckets or another first mount than the cluster has.
func (c *Cluster) samePlace(r UpRequest) error {
	if len(r.Buckets) > 0 && !reflect.DeepEqual(r.Buckets, c.spec.Buckets) {
		if !sameBuckets(r.Buckets, c.spec.Buckets) {
			return objcache.Errorf(objcache.Invalid, "this cluster has other buckets (`objcache dev down --purge` first, or another --state)")
		}
		c.spec.Buckets = r.Buckets // new keys for the servers that are started
	}
	if r.Mount != "" && len(c.spec.Mounts) > 0 && c.spec.Mounts[0].Mountpoint != r.Mount {
		return objcache.Errorf(objcache.Invalid, "--mount %s: this cluster's first mount is elsewhere (add one with `objcache dev mount`)", r.Mount)
	}
	return nil
}

func sameBuckets(a, b []Bucket) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].DirName != b[i].DirName || a[i].BucketName != b[i].BucketName || a[i].Endpoint != b[i].Endpoint {
			return false
		}
	}
	return true
}

// checkAll finds what is wrong with the request before anything is started.
func (c *Cluster) checkAll(ctx context.Context) error {
	if c.spec.S3 != nil && c.prog.Versitygw == "" && !read(s3Member{c}.dir()).running() {
		return s3Member{c}.missing()
	}
	for _, m := range c.spec.Mounts {
		if err := c.checkMountpoint(m); err != nil {
			return err
		}
	}
	if c.spec.S3 != nil {
		return nil
	}
	for _, b := range c.spec.Buckets {
		if err := c.store.Check(ctx, b); err != nil {
			return err
		}
	}
	return nil
}

// checkMountpoint says why nothing can be mounted there; a mount that runs, or a dead one of this cluster, is fine.
func (c *Cluster) checkMountpoint(m mountSpec) error {
	member := mountMember{c, m}
	if p := read(member.dir()); p.running() || p.PID != 0 && dead(m.Mountpoint) {
		return nil
	}
	kind, err := mountKind(m.Mountpoint)
	switch {
	case err != nil:
		return err
	case kind != "":
		return objcache.Errorf(objcache.Exist, "mountpoint %s has a %s mounted on it already", m.Mountpoint, kind)
	case m.Own:
		return nil
	}
	entries, err := os.ReadDir(m.Mountpoint)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Stat(filepath.Dir(m.Mountpoint)); err != nil {
			return objcache.Errorf(objcache.NotExist, "directory %s for the mountpoint", filepath.Dir(m.Mountpoint))
		}
		return nil // makeDirs makes it
	case err != nil:
		return fmt.Errorf("mountpoint: %w", err)
	case len(entries) > 0:
		return objcache.Errorf(objcache.NotEmpty, "mountpoint %s has %s in it", m.Mountpoint, entries[0].Name())
	}
	return nil
}

func dead(mountpoint string) bool {
	ours, err := mountedHere(mountpoint)
	return err == nil && ours
}

// writeBuckets writes the file that tells servers of external storage.
func (c *Cluster) writeBuckets() error {
	b, err := yaml.Marshal(map[string]any{"buckets": c.spec.Buckets})
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(c.dir, bucketsName), b)
}
