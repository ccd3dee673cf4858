package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// bucket is where the local S3 server keeps the data, from `objcache dev status -o json`.
type bucket struct{ endpoint, dirName, name, accessKey, secretKey string }

// status is the part of `objcache dev status -o json` that the demo reads.
type status struct {
	Servers []struct {
		Name string `json:"name"`
		PID  int    `json:"pid"`
	} `json:"servers"`
	Mounts []struct {
		PID int `json:"pid"`
	} `json:"mounts"`
	S3 struct {
		Endpoint string `json:"endpoint"`
		PID      int    `json:"pid"`
		Buckets  []struct {
			DirName    string `json:"dirName"`
			BucketName string `json:"bucketName"`
			AccessKey  string `json:"accessKey"`
			SecretKey  string `json:"secretKey"`
		} `json:"buckets"`
	} `json:"s3"`
}

func (d *demo) state() string  { return filepath.Join(d.scratch, "state") }
func (d *demo) mnt() string    { return filepath.Join(d.state(), "mnt", d.bucket.dirName) }
func (d *demo) second() string { return filepath.Join(d.scratch, "second") }

// output runs a program and returns what it printed; an error is its last line.
func (d *demo) output(ctx context.Context, name string, args ...string) ([]byte, error) {
	return d.command(exec.CommandContext(ctx, d.program(name), args...))
}

// program is one of ours beside this one, or one of the system's.
func (d *demo) program(name string) string {
	if path := filepath.Join(d.bin, name); exists(path) {
		return path
	}
	return name
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (d *demo) command(cmd *exec.Cmd) ([]byte, error) {
	var out, errs bytes.Buffer
	if cmd.Stdout == nil {
		cmd.Stdout = &out
	}
	if cmd.Stderr == nil {
		cmd.Stderr = &errs
	}
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_TERMINAL_PROMPT=0", "LC_ALL=C")
	if err := cmd.Run(); err != nil {
		lines := strings.Split(strings.TrimSpace(errs.String()), "\n")
		return nil, fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, lines[len(lines)-1])
	}
	return out.Bytes(), nil
}

func (d *demo) status(ctx context.Context) (status, error) {
	var st status
	b, err := d.output(ctx, "objcache", "dev", "status", "--state", d.state(), "-o", "json")
	if err != nil {
		return st, err
	}
	return st, json.Unmarshal(b, &st)
}

// pids are all processes of the cluster; none when there is no cluster.
func (d *demo) pids(ctx context.Context) []int {
	st, err := d.status(ctx)
	if err != nil {
		return nil
	}
	pids := []int{st.S3.PID}
	for _, s := range st.Servers {
		pids = append(pids, s.PID)
	}
	for _, m := range st.Mounts {
		pids = append(pids, m.PID)
	}
	return pids
}

func (d *demo) up(ctx context.Context, _ *step) error {
	if _, err := d.output(ctx, "objcache", "dev", "up", "--servers", "3", "--state", d.state()); err != nil {
		return err
	}
	st, err := d.status(ctx)
	if err != nil {
		return err
	}
	b := st.S3.Buckets[0]
	d.bucket = bucket{st.S3.Endpoint, b.DirName, b.BucketName, b.AccessKey, b.SecretKey}
	return nil
}

func (d *demo) killServers(ctx context.Context, _ *step) error {
	names := []string{"server-0", "server-1", "server-2"}
	if _, err := d.output(ctx, "objcache", append([]string{"dev", "kill", "--state", d.state()}, names...)...); err != nil {
		return err
	}
	_, err := d.output(ctx, "objcache", append([]string{"dev", "start", "--state", d.state()}, names...)...)
	return err
}

func (d *demo) secondMount(ctx context.Context, _ *step) error {
	if err := os.Mkdir(d.second(), 0o700); err != nil {
		return err
	}
	_, err := d.output(ctx, "objcache", "dev", "mount", "--state", d.state(), d.second())
	return err
}

func (d *demo) flush(ctx context.Context, s *step) error {
	cmd := exec.CommandContext(ctx, d.program("objcache"), "flush", filepath.Dir(d.mnt()))
	w := &flushLines{s: s}
	cmd.Stderr = w
	if _, err := d.command(cmd); err != nil {
		return fmt.Errorf("%w: %s", err, w.last)
	}
	return nil
}

// flushLines follows what `objcache flush` prints of its progress.
type flushLines struct {
	s    *step
	last string
}

func (f *flushLines) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		f.last = strings.TrimSpace(line)
		var done, of int64
		if n, err := fmt.Sscanf(f.last, "persisted %d of %d files", &done, &of); n == 2 && err == nil {
			f.s.files.Store(done)
			f.s.ofFiles.Store(of)
		}
	}
	return len(p), nil
}
