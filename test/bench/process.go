package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// child is a process that this program started and ends.
type child struct {
	name string
	cmd  *exec.Cmd
	log  string
	done chan struct{}
}

func start(name, dir string, command string, args ...string) (*child, error) {
	c := &child{name: name, log: filepath.Join(dir, name+".log"), done: make(chan struct{})}
	log, err := os.Create(c.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	c.cmd = exec.Command(command, args...)
	c.cmd.Stdout, c.cmd.Stderr = log, log
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the terminal's SIGINT is for this program only
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() { _ = c.cmd.Wait(); close(c.done) }()
	return c, nil
}

// ready waits until the child is, and fails with its last words when it ends before.
func (c *child) ready(ctx context.Context, is func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	ended := false
	err := until(ctx, func() bool {
		select {
		case <-c.done:
			ended = true
		default:
		}
		return ended || is()
	})
	if err == nil && !ended {
		return nil
	}
	b, _ := os.ReadFile(c.log) // it may have said nothing
	return fmt.Errorf("%s is not ready: %s", c.name, bytes.TrimSpace(b[max(0, len(b)-500):]))
}

// stop asks the child to end and kills it when ctx does first.
func (c *child) stop(ctx context.Context) error {
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // it may be gone
	select {
	case <-c.done:
		return nil
	case <-time.After(abortAfter):
	case <-ctx.Done():
	}
	_ = c.cmd.Process.Kill()
	<-c.done
	return fmt.Errorf("%s had to be killed", c.name)
}

// usage is what a process has used since its start.
type usage struct {
	cpu  time.Duration
	peak int64 // bytes of memory, VmHWM
}

const ticksPerSecond = 100 // USER_HZ, the same on every Linux

func usageOf(pid int) usage {
	var u usage
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return u
	}
	w := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(w) > 12 {
		user, _ := strconv.ParseInt(w[11], 10, 64)
		system, _ := strconv.ParseInt(w[12], 10, 64)
		u.cpu = time.Duration(user+system) * time.Second / ticksPerSecond
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return u
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			u.peak = kib << 10
		}
	}
	return u
}
