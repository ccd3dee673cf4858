package dev

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/objcache/objcache"
)

type mountMember struct {
	c    *Cluster
	spec mountSpec
}

func (m mountSpec) name() string { return "mount-" + strconv.Itoa(m.Number) }

func (m mountMember) name() string { return m.spec.name() }
func (m mountMember) dir() string {
	return filepath.Join(m.c.dir, "mounts", strconv.Itoa(m.spec.Number))
}
func (m mountMember) record() string { return filepath.Join(m.dir(), "record.json") }

// mountRecord is what a mount process writes when it answers (`objcache mount --ready-file`).
type mountRecord struct {
	Socket string `json:"socket"` // answers GET /status
}

func (m mountMember) readRecord() (mountRecord, error) {
	var r mountRecord
	b, err := os.ReadFile(m.record())
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	return r, err
}

func (m mountMember) args() []string {
	set := m.c.spec.Settings
	return []string{
		"mount", "--servers", strings.Join(m.c.addresses(), ","), "--cache-dir", filepath.Join(m.dir(), "cache"), "--cache-bytes", strconv.FormatInt(set.CacheBytes, 10),
		"--consistency", set.Consistency, "--passthrough", set.Passthrough, "--ready-file", m.record(),
		"--pprof=" + strconv.FormatBool(set.Pprof),
		"--allow-other=" + strconv.FormatBool(os.Geteuid() == 0), "--", m.spec.Mountpoint,
	}
}

func (m mountMember) start(ctx context.Context) error {
	if err := m.ended(ctx); err != nil {
		return err
	}
	if err := m.makeDirs(); err != nil {
		return err
	}
	d, err := launch(m.dir(), nil, m.c.prog.Objcache, m.args()...)
	if err != nil {
		return err
	}
	err = d.until(ctx, m.name(), func(context.Context) bool {
		_, err := os.Stat(m.record())
		return err == nil
	})
	if err != nil {
		return errors.Join(err, m.ended(context.WithoutCancel(ctx)))
	}
	return nil
}

func (m mountMember) makeDirs() error {
	if err := os.MkdirAll(filepath.Join(m.dir(), "cache"), 0o700); err != nil {
		return err
	}
	if m.spec.Own {
		return os.MkdirAll(m.spec.Mountpoint, 0o755)
	}
	if err := os.Mkdir(m.spec.Mountpoint, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// ended takes away what a mount process that is gone left behind: its record and, after kill -9, a mountpoint that answers nothing.
func (m mountMember) ended(ctx context.Context) error {
	if err := os.Remove(m.record()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	ours, err := mountedHere(m.spec.Mountpoint)
	if err != nil || !ours {
		return err
	}
	return detach(ctx, m.spec.Mountpoint)
}

// detach takes a dead mount out of the tree. It never touches what is below the mountpoint.
func detach(ctx context.Context, mountpoint string) error {
	err := unix.Unmount(mountpoint, unix.MNT_DETACH)
	if err == nil || err == unix.EINVAL {
		return nil
	}
	out, ferr := exec.CommandContext(ctx, "fusermount3", "-u", "-z", "--", mountpoint).CombinedOutput()
	if ferr != nil {
		return objcache.Errorf(objcache.IO, "unmount %s: %w (fusermount3: %s)", mountpoint, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// addresses of all servers.
func (c *Cluster) addresses() []string {
	var as []string
	for _, s := range c.spec.Servers {
		as = append(as, s.Address)
	}
	return as
}
