package dev

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/objcache/objcache"
)

// process names one process for ever: a pid is used again, a pid with its start time is not.
type process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // ticks since boot, field 22 of /proc/PID/stat
	Boot  string `json:"boot"`
}

const (
	pidName = "pid"
	logName = "log"
	poll    = 10 * time.Millisecond
)

// statOf reads the start time of a process. ok is false when there is none, or only a zombie.
func statOf(pid int) (start uint64, ok bool) {
	w := stat(fmt.Sprintf("/proc/%d/stat", pid))
	if len(w) < 20 || over(w[0]) && !othersRun(pid) {
		return 0, false
	}
	if _, err := fmt.Sscan(w[19], &start); err != nil {
		return 0, false
	}
	return start, true
}

// stat is what the kernel says of a process or thread, from its state on; nil when it is gone.
func stat(path string) []string {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	// pid (name) state ppid ...; the name may hold spaces and parentheses
	return strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
}

func over(state string) bool { return state == "Z" || state == "X" }

// othersRun reports whether a process lives on in threads other than its first, as one that was killed does for a moment. Its files are still open then,
// and locked.
func othersRun(pid int) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		return false
	}
	for _, path := range threads {
		if w := stat(path); len(w) > 0 && !over(w[0]) {
			return true
		}
	}
	return false
}

func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// running reports whether this very process is alive.
func (p process) running() bool {
	start, ok := statOf(p.PID)
	return ok && p.PID > 0 && start == p.Start && bootID() == p.Boot
}

// signal sends a signal to the process; one that is gone is no error.
func (p process) signal(s syscall.Signal) error {
	if !p.running() {
		return nil
	}
	if err := syscall.Kill(p.PID, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal process %d: %w", p.PID, err)
	}
	return nil
}

// gone waits until the process has ended.
func (p process) gone(ctx context.Context) error {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for p.running() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return objcache.Errorf(objcache.Unavailable, "process %d has not ended: %w", p.PID, ctx.Err())
		}
	}
	return nil
}

// read returns the process that the pid file in dir names; the zero process, which is not running, when there is none.
func read(dir string) process {
	var p process
	b, err := os.ReadFile(filepath.Join(dir, pidName))
	if err != nil || json.Unmarshal(b, &p) != nil {
		return process{}
	}
	return p
}

// daemon is a process that was started by this command.
type daemon struct {
	process
	dir  string
	from int64 // where its lines in the log begin
}

// launch runs a program that outlives this one: in a session of its own, its output appended to the log in dir, its pid file written.
func launch(dir string, env []string, name string, args ...string) (*daemon, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(filepath.Join(dir, logName), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own copy
	from, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, "/"
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := process{PID: cmd.Process.Pid, Boot: bootID()}
	p.Start, _ = statOf(p.PID) // it cannot be reaped before Wait
	go func() { _ = cmd.Wait() }()
	d := &daemon{process: p, dir: dir, from: from}
	b, err := json.Marshal(p)
	if err == nil {
		err = writeFile(filepath.Join(dir, pidName), b)
	}
	if err != nil {
		return nil, errors.Join(err, p.signal(syscall.SIGKILL))
	}
	return d, nil
}

// until asks ready until it says yes. When the process ends before, or ctx does, the process is killed and the error is its last words.
func (d *daemon) until(ctx context.Context, name string, ready func(context.Context) bool) error {
	tick := time.NewTicker(2 * poll)
	defer tick.Stop()
	for {
		if ready(ctx) {
			return nil
		}
		if !d.running() {
			return objcache.Errorf(objcache.Unavailable, "%s ended: %s", name, d.lastWords())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			err := objcache.Errorf(objcache.Unavailable, "%s is not ready (%w): %s", name, ctx.Err(), d.lastWords())
			return errors.Join(err, d.kill())
		}
	}
}

func (p process) kill() error {
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) // SIGKILL is certain, but a disk may be slow
	defer cancel()
	return p.gone(ctx)
}

// lastWords is the last line that the process logged, or where to look.
func (d *daemon) lastWords() string {
	path := filepath.Join(d.dir, logName)
	f, err := os.Open(path)
	if err != nil {
		return "see " + path
	}
	defer f.Close()
	if _, err := f.Seek(d.from, io.SeekStart); err != nil {
		return "see " + path
	}
	last := ""
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if s := strings.TrimSpace(lines.Text()); s != "" {
			last = s
		}
	}
	if last == "" {
		return "it said nothing in " + path
	}
	return last
}
