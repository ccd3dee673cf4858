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
	"sync"
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
}

type outcome struct {
	Out, Errs []byte
	Err       string
}

// newLauncher starts one that ends with the test, after everything that is cleaned up before it.
func newLauncher(t *testing.T) *launcher {
	t.Helper()
	cmd := exec.CommandContext(context.Background(), os.Args[0])
	cmd.Env = append(os.Environ(), launcherEnv+"=1")
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
	l.mu.Lock()
	defer l.mu.Unlock()
	var r outcome
	if err := errors.Join(l.in.Encode(order{path, args, env}), l.out.Decode(&r)); err != nil {
		return nil, fmt.Errorf("launcher: %w", err)
	}
	if r.Err != "" {
		return nil, fmt.Errorf("%s\n%s", r.Err, r.Errs)
	}
	return r.Out, nil
}

// launch runs commands one after the other until its input ends.
func launch() {
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var o order
		if in.Decode(&o) != nil {
			return
		}
		var r outcome
		var sout, serr bytes.Buffer
		ctx, cancel := context.WithTimeout(context.Background(), commandMax)
		cmd := exec.CommandContext(ctx, o.Path, o.Args...)
		cmd.Stdout, cmd.Stderr, cmd.Env = &sout, &serr, append(os.Environ(), o.Env...)
		if err := cmd.Run(); err != nil {
			r.Err = err.Error()
		}
		cancel()
		r.Out, r.Errs = sout.Bytes(), serr.Bytes()
		if out.Encode(r) != nil {
			return
		}
	}
}
