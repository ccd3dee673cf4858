// Command demo shows objcache at work on this machine and checks every byte: a local S3 server, three cache servers and a mount, the Go source tree
// as data, other people's tools, and kill -9 of all servers. It promises to exit non-zero if a byte differs and to leave nothing running. It does not
// know how objcache works: it runs the programs a user has.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	bin := flag.String("bin", "bin", "directory with objcache, versitygw and rclone")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *bin)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", strings.ReplaceAll(err.Error(), "\n", "; "))
		os.Exit(1)
	}
}

// demo is one run.
type demo struct {
	bin, scratch string
	source       string // the Go source tree
	bucket       bucket
	report       *report
	seeded       manifest // what the bucket held before the mount
	written      manifest // what the mount acknowledged; paths below the bucket's directory
}

func run(ctx context.Context, bin string) (err error) {
	bin, err = filepath.Abs(bin)
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "objcache-demo-")
	if err != nil {
		return err
	}
	goroot, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("go env GOROOT: %w", err)
	}
	source, err := filepath.EvalSymlinks(filepath.Join(strings.TrimSpace(string(goroot)), "src"))
	if err != nil {
		return err
	}
	d := &demo{bin: bin, scratch: scratch, source: source, report: newReport(os.Stdout), written: manifest{}}
	err = d.steps(ctx)
	err = errors.Join(err, d.tearDown(err == nil))
	d.report.table()
	if err == nil {
		fmt.Printf("\nEvery byte of %d files is as it was written.\n", len(d.seeded)+len(d.written))
	}
	return err
}

func (d *demo) steps(ctx context.Context) error {
	for _, step := range []struct {
		name string
		do   func(context.Context, *step) error
	}{
		{"start S3, 3 servers and a mount", d.up},
		{"hash the Go source tree", d.hashSource},
		{"put it into the bucket with rclone", d.seed},
		{"read it through the mount, compare", d.readSeeded},
		{"cp -r through the mount", d.copyTree},
		{"tar x through the mount", d.untar},
		{"git clone, fsck, status", d.clone},
		{"sqlite database", d.sqlite},
		{"read back what was written", d.readBack},
		{"objcache flush", d.flush},
		{"read the bucket with rclone, compare", d.checkBucket},
		{"cp -r once more, not flushed", d.copyLate},
		{"kill -9 all servers, start them", d.killServers},
		{"second mount with an empty cache", d.secondMount},
		{"read everything there, compare", d.readAll},
	} {
		if err := d.report.step(ctx, step.name, step.do); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

// tearDown stops everything, checks that nothing is left, and deletes the scratch directory, whose logs stay after a failure.
func (d *demo) tearDown(ok bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	args := []string{"dev", "down", "--state", d.state()}
	if ok {
		args = append(args, "--purge")
	}
	err := d.report.step(ctx, "take everything down", func(ctx context.Context, s *step) error {
		pids := d.pids(ctx)
		_, err := d.output(ctx, "objcache", args...)
		return errors.Join(err, gone(pids), notMounted(d.scratch))
	})
	if !ok || err != nil {
		return errors.Join(err, fmt.Errorf("logs are in %s", d.state()))
	}
	return os.RemoveAll(d.scratch)
}

func gone(pids []int) error {
	for _, pid := range pids {
		if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && !strings.Contains(string(stat), ") Z ") {
			return fmt.Errorf("process %d still runs", pid)
		}
	}
	return nil
}

func notMounted(dir string) error {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err == nil && strings.Contains(string(table), " "+dir) {
		return fmt.Errorf("something is still mounted below %s", dir)
	}
	return err
}
