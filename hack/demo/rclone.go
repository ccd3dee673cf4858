package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

// rclone copies a tree with rclone and follows its statistics.
func (d *demo) rclone(ctx context.Context, s *step, from, to string) error {
	cmd := exec.CommandContext(ctx, d.program("rclone"), "copy", from, to, "--transfers", "16", "--checkers", "16", "--s3-no-check-bucket",
		"--use-json-log", "--stats", "1s", "--stats-log-level", "NOTICE", "--config", os.DevNull, "--retries", "1")
	r, w := io.Pipe()
	cmd.Stderr = w
	cmd.Env = append(os.Environ(),
		"RCLONE_CONFIG_DEMO_TYPE=s3", "RCLONE_CONFIG_DEMO_PROVIDER=Other", "RCLONE_CONFIG_DEMO_ENDPOINT="+d.bucket.endpoint, "RCLONE_CONFIG_DEMO_REGION=us-east-1",
		"RCLONE_CONFIG_DEMO_ACCESS_KEY_ID="+d.bucket.accessKey, "RCLONE_CONFIG_DEMO_SECRET_ACCESS_KEY="+d.bucket.secretKey)
	var last string
	var wg sync.WaitGroup
	wg.Go(func() { last = follow(r, s) })
	err := cmd.Run()
	_ = w.Close() // of a pipe in memory: never an error
	wg.Wait()
	if err != nil {
		return fmt.Errorf("rclone: %w: %s", err, last)
	}
	return nil
}

// follow reads rclone's JSON log to its end and returns the last message that is no statistics.
func follow(r io.Reader, s *step) (last string) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	var files, bytes int64
	for lines.Scan() {
		var l struct {
			Msg   string `json:"msg"`
			Stats *struct {
				Bytes     int64 `json:"bytes"`
				Transfers int64 `json:"transfers"`
			} `json:"stats"`
		}
		if json.Unmarshal(lines.Bytes(), &l) != nil {
			last = lines.Text()
			continue
		}
		if l.Stats == nil {
			last = l.Msg
			continue
		}
		s.did(l.Stats.Transfers-files, l.Stats.Bytes-bytes)
		files, bytes = l.Stats.Transfers, l.Stats.Bytes
	}
	_, _ = io.Copy(io.Discard, r) // after a line that is too long: rclone must not block
	return last
}

func (d *demo) remote(dir string) string { return "demo:" + d.bucket.name + "/" + dir }

func (d *demo) hashSource(ctx context.Context, s *step) (err error) {
	d.seeded, err = hashTree(ctx, d.source, s)
	if err == nil && len(d.seeded) < 10_000 {
		err = fmt.Errorf("%s has %d files; the demo wants over 10,000", d.source, len(d.seeded))
	}
	return err
}

func (d *demo) seed(ctx context.Context, s *step) error {
	s.ofFiles.Store(int64(len(d.seeded)))
	return d.rclone(ctx, s, d.source, d.remote("src"))
}

// checkBucket downloads what was written through the mount and compares it.
func (d *demo) checkBucket(ctx context.Context, s *step) error {
	s.ofFiles.Store(int64(len(d.written)))
	down := filepath.Join(d.scratch, "bucket")
	if err := d.rclone(ctx, s, d.remote("written"), down); err != nil {
		return err
	}
	got, err := hashTree(ctx, down, &step{})
	if err != nil {
		return err
	}
	return d.written.below("written").same(got)
}
