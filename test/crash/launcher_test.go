//go:build integration

package crash

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

const launcherEnv = "OBJCACHE_CRASH_LAUNCHER"

// launcher is a process that runs commands for the test. The test must not fork while it has files of the mount open: the child closes them before it
// becomes the command, each close waits for the servers, and the command may be the one that starts them.
type launcher struct {
	mu  sync.Mutex
	in  *json.Encoder
	out *json.Decoder
}

type order struct {
	Path string
	Args []string
	Env  []string // besides the launcher's own
	Log  string   // not empty: the process lives on, and this file gets its output
}

type outcome struct {
	Out, Errs []byte
	Err       string
	PID       int // of what lives on
}

// newLauncher starts one that ends with the test, after everything that is cleaned up before it. What it runs has env.
func newLauncher(t *testing.T, env ...string) *launcher {
	t.Helper()
	cmd := exec.CommandContext(context.Background(), os.Args[0])
	cmd.Env = append(append(os.Environ(), launcherEnv+"=1", "XDG_RUNTIME_DIR="+filepath.Join(t.TempDir(), "run")), env...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
			t.Errorf("launcher: %v", err)
		}
	})
	return &launcher{in: json.NewEncoder(in), out: json.NewDecoder(out)}
}

func (l *launcher) run(path string, args ...string) ([]byte, error) {
	return l.runWith(nil, path, args...)
}

func (l *launcher) runWith(env []string, path string, args ...string) ([]byte, error) {
	r, err := l.do(order{Path: path, Args: args, Env: env})
	return r.Out, err
}

func (l *launcher) do(o order) (outcome, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var r outcome
	if err := errors.Join(l.in.Encode(o), l.out.Decode(&r)); err != nil {
		return r, fmt.Errorf("launcher: %w", err)
	}
	if r.Err != "" {
		return r, fmt.Errorf("%s\n%s", r.Err, r.Errs)
	}
	return r, nil
}

// launch runs commands one after the other until its input ends.
func launch() {
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var o order
		if in.Decode(&o) != nil {
			return
		}
		r := o.run
		if o.Log != "" {
			r = o.leave
		}
		if out.Encode(r()) != nil {
			return
		}
	}
}

func (o order) run() outcome {
	var r outcome
	var sout, serr bytes.Buffer
	ctx, cancel := context.WithTimeout(context.Background(), commandMax)
	defer cancel()
	cmd := exec.CommandContext(ctx, o.Path, o.Args...)
	cmd.Stdout, cmd.Stderr, cmd.Env = &sout, &serr, append(os.Environ(), o.Env...)
	if err := cmd.Run(); err != nil {
		r.Err = err.Error()
	}
	r.Out, r.Errs = sout.Bytes(), serr.Bytes()
	return r
}

// leave starts a process that outlives the launcher.
func (o order) leave() outcome {
	log, err := os.OpenFile(o.Log, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return outcome{Err: err.Error()}
	}
	defer log.Close() // the process has its own
	cmd := exec.CommandContext(context.Background(), o.Path, o.Args...)
	cmd.Stdout, cmd.Stderr, cmd.Dir, cmd.Env = log, log, "/", append(os.Environ(), o.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return outcome{Err: err.Error()}
	}
	go func() { _ = cmd.Wait() }()
	return outcome{PID: cmd.Process.Pid}
}
