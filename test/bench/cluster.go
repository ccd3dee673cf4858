package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"github.com/objcache/objcache/dev"
	"github.com/objcache/objcache/test/s3server"
)

// cluster is `objcache dev up` with three servers, and further mounts.
type cluster struct {
	e     *env
	state string
	mnt   string
}

const servers = 3

// loneServer is a cluster of one server.
func (e *env) loneServer(ctx context.Context) (*cluster, error) {
	c := &cluster{e: e, state: e.disk("lone"), mnt: e.disk("lone-mnt")}
	if err := os.Mkdir(c.mnt, 0o755); err != nil {
		return nil, err
	}
	b, err := yaml.Marshal(map[string]any{"buckets": []dev.Bucket{
		{DirName: direct, BucketName: direct, Endpoint: e.s3.S3.Endpoint, AccessKey: s3server.AccessKey, SecretKey: s3server.SecretKey},
	}})
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(e.disk("lone.yaml"), b, 0o600); err != nil {
		return nil, err
	}
	e.down.add("kill what is left of the lone server", c.kill)
	e.down.add("take the lone server down", func(ctx context.Context) error { return c.dev(ctx, "down", "--purge", "--force") })
	e.down.add("unmount "+c.mnt, unmount(c.mnt))
	return c, c.dev(ctx, "up", "--servers", "1", "--mount", c.mnt, "--buckets", e.disk("lone.yaml"), "--flush-interval", e.flushInterval.String())
}

func (e *env) openCluster(ctx context.Context) error {
	c := &cluster{e: e, state: e.disk("cluster"), mnt: e.disk("mnt")}
	if err := os.Mkdir(c.mnt, 0o755); err != nil {
		return err
	}
	var bs []dev.Bucket
	for name, url := range map[string]string{viaProxy: e.proxy.URL, direct: e.s3.S3.Endpoint} {
		bs = append(bs, dev.Bucket{DirName: name, BucketName: name, Endpoint: url, AccessKey: s3server.AccessKey, SecretKey: s3server.SecretKey})
	}
	b, err := yaml.Marshal(map[string]any{"buckets": bs})
	if err != nil {
		return err
	}
	if err := os.WriteFile(e.disk("buckets.yaml"), b, 0o600); err != nil {
		return err
	}
	e.down.add("kill what is left of the cluster", c.kill)
	e.down.add("take the cluster down", func(ctx context.Context) error { return c.dev(ctx, "down", "--purge", "--force") })
	e.down.add("unmount "+c.mnt, unmount(c.mnt))
	err = c.dev(ctx, "up", "--servers", strconv.Itoa(servers), "--mount", c.mnt, "--buckets", e.disk("buckets.yaml"), "--passthrough", e.passthrough,
		"--cache-bytes", strconv.FormatInt(c.room(), 10), "--capacity", strconv.FormatInt(c.room(), 10), "--flush-interval", e.flushInterval.String(),
		"--pprof="+strconv.FormatBool(e.pprof))
	if err != nil {
		return err
	}
	e.cluster = c
	return c.learn(ctx)
}

// room is the size of every cache: what is measured never waits for an eviction.
func (c *cluster) room() int64 { return max(gib, c.e.size()*int64(c.e.runs+3)) }

func (c *cluster) dev(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, c.e.objcache, append([]string{"dev", "--state", c.state}, args...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("objcache dev %s: %w: %s", args[0], err, strings.TrimSpace(string(out)))
	}
	return nil
}

func (c *cluster) learn(ctx context.Context) error {
	st, err := dev.ReadStatus(ctx, c.state)
	if err != nil {
		return err
	}
	for _, s := range st.Servers {
		c.e.pids[s.Name] = s.PID
	}
	for _, m := range st.Mounts {
		c.e.pids[m.Name] = m.PID
	}
	if c.e.pprof {
		say("profiles: %s", c.state)
	}
	return nil
}

// kill ends processes whose pid files are still there after an orderly end has failed.
func (c *cluster) kill(ctx context.Context) error {
	st, err := dev.ReadStatus(ctx, c.state)
	if err != nil {
		return nil // nothing was made, or it is gone
	}
	for _, s := range st.Servers {
		killPid(s.PID)
	}
	for _, m := range st.Mounts {
		killPid(m.PID)
	}
	return nil
}

func killPid(pid int) {
	if pid > 0 {
		_ = unix.Kill(pid, unix.SIGKILL) // gone is what it should be
	}
}

// mount adds a mount with an empty cache of its own and returns where the two directories are.
func (c *cluster) mount(ctx context.Context, name, passthrough string) (string, error) {
	dir, cache, ready := c.e.disk(name), c.e.disk(name+"-cache"), c.e.disk(name+".ready")
	for _, d := range []string{dir, cache} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return "", err
		}
	}
	st, err := dev.ReadStatus(ctx, c.state)
	if err != nil {
		return "", err
	}
	var addresses []string
	for _, s := range st.Servers {
		addresses = append(addresses, s.Address)
	}
	p, err := start(name, c.e.dir, c.e.objcache, "mount", "--servers", strings.Join(addresses, ","), "--cache-dir", cache,
		"--cache-bytes", strconv.FormatInt(c.room(), 10), "--passthrough", passthrough, "--ready-file", ready, "--pprof="+strconv.FormatBool(c.e.pprof), "--", dir)
	if err != nil {
		return "", err
	}
	c.e.down.add("stop "+name, p.stop)
	c.e.down.add("unmount "+dir, unmount(dir))
	c.e.pids[name] = p.cmd.Process.Pid
	return dir, p.ready(ctx, func() bool { _, err := os.Stat(ready); return err == nil })
}

// at is the path of a key on the cluster's first mount.
func (c *cluster) at(dir, key string) string { return filepath.Join(c.mnt, dir, key) }
