package dev

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/objcache/objcache"
)

// The state directory:
//
//	objcache-dev             marker; its content is the version of this layout
//	lock                     held by a command that changes something
//	cluster.json             spec (0600: it has keys)
//	buckets.yaml             what servers are told of external storage (0600)
//	s3/                      data/, sidecar/, log, pid
//	servers/server-0/        config.yaml, state/, log, pid
//	mounts/0/                cache/, record.json, log, pid
//	mnt/                     where the first mount is unless the user says otherwise
const (
	markerName  = "objcache-dev"
	layout      = "1"
	specName    = "cluster.json"
	bucketsName = "buckets.yaml"
)

// claim checks that dir is a state directory of this layout; with create it makes one of a missing or empty directory.
func claim(dir string, create bool) error {
	version, err := os.ReadFile(filepath.Join(dir, markerName))
	switch {
	case err == nil && strings.TrimSpace(string(version)) == layout:
		return nil
	case err == nil:
		return objcache.Errorf(objcache.Invalid, "state directory %s has layout %q and this program has %s: use the program that made it, or another --state",
			dir, strings.TrimSpace(string(version)), layout)
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("state directory: %w", err)
	case !create:
		return objcache.Errorf(objcache.NotExist, "cluster in %s (make one with `objcache dev up`)", dir)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	if len(entries) > 0 {
		return objcache.Errorf(objcache.NotEmpty, "%s has %s in it and was not made by `objcache dev up`: choose another --state", dir, entries[0].Name())
	}
	return writeFile(filepath.Join(dir, markerName), []byte(layout+"\n"))
}

// writeFile replaces a file in one step. Only the user may read it.
func writeFile(path string, b []byte) error {
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// spec is what a cluster is made of. It is kept, so that later commands find the same ports, keys and directories.
type spec struct {
	Cluster  string       `json:"cluster"`
	Settings Settings     `json:"settings"`
	Servers  []serverSpec `json:"servers"`
	Mounts   []mountSpec  `json:"mounts"`
	S3       *s3Spec      `json:"s3,omitempty"` // the local S3 server
	Buckets  []Bucket     `json:"buckets"`
	Formed   bool         `json:"formed,omitempty"` // every server has run: one without a state has lost it
	Clean    bool         `json:"clean,omitempty"`  // everything was persisted when the servers were stopped
}

type serverSpec struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	Metrics string `json:"metrics"`
}

type mountSpec struct {
	Number     int    `json:"number"`
	Mountpoint string `json:"mountpoint"`
	Own        bool   `json:"own,omitempty"` // dev made the directory and may remove it
}

type s3Spec struct {
	Address   string `json:"address"`
	AccessKey string `json:"accessKey"`
	SecretKey string `json:"secretKey"`
}

func loadSpec(dir string) (spec, error) {
	var s spec
	b, err := os.ReadFile(filepath.Join(dir, specName))
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err != nil {
		return s, fmt.Errorf("state directory %s: %s: %w", dir, specName, err)
	}
	return s, nil
}

func (c *Cluster) saveSpec() error {
	b, err := json.MarshalIndent(c.spec, "", "  ")
	if err != nil {
		return err
	}
	if err := writeFile(filepath.Join(c.dir, specName), append(b, '\n')); err != nil {
		return err
	}
	return c.writeBuckets()
}

// lock is held by the one command that may change a cluster.
type lock struct{ f *os.File }

const lockRetry = 50 * time.Millisecond

// takeLock waits until ctx ends. A directory that is purged meanwhile is no cluster any more.
func takeLock(ctx context.Context, dir string, out io.Writer) (*lock, error) {
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	tick := time.NewTicker(lockRetry)
	defer tick.Stop()
	for waited := false; ; waited = true {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil && sameFile(f, path):
			return &lock{f}, nil
		case err == nil:
			f.Close()
			return nil, objcache.Errorf(objcache.NotExist, "cluster in %s (it was purged a moment ago)", dir)
		case err != unix.EWOULDBLOCK && err != unix.EINTR:
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		case !waited:
			fmt.Fprintln(out, "waiting for another `objcache dev` command")
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			f.Close()
			return nil, objcache.Errorf(objcache.Unavailable, "state directory %s is in use by another command: %w", dir, ctx.Err())
		}
	}
}

func sameFile(f *os.File, path string) bool {
	a, aerr := f.Stat()
	b, berr := os.Stat(path)
	return aerr == nil && berr == nil && os.SameFile(a, b)
}

func (l *lock) release() { l.f.Close() }
