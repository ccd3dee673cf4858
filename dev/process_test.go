package dev

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func start(t *testing.T, body string) *daemon {
	t.Helper()
	d, err := launch(filepath.Join(t.TempDir(), "p"), nil, "/bin/sh", "-c", body)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.kill(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func TestProcess_PidFileFindsItUntilItIsGone(t *testing.T) {
	d := start(t, "exec sleep 600")
	p := read(d.dir)
	if p != d.process || !p.running() {
		t.Fatalf("pid file %+v of %+v, running %t", p, d.process, p.running())
	}
	if sid, err := syscall.Getpgid(p.PID); err != nil || sid != p.PID {
		t.Errorf("process group %d, %v: it dies with this terminal", sid, err)
	}
	if err := p.signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := p.gone(t.Context()); err != nil || p.running() {
		t.Errorf("after SIGKILL: %v, running %t", err, p.running())
	}
}

func TestProcess_AnotherWithTheSamePidIsNotIt(t *testing.T) {
	start, ok := statOf(os.Getpid())
	if !ok {
		t.Fatal("this process has no start time")
	}
	self := process{PID: os.Getpid(), Start: start, Boot: bootID()}
	if !self.running() {
		t.Errorf("%+v does not run", self)
	}
	for name, p := range map[string]process{
		"another start": {self.PID, self.Start + 1, self.Boot},
		"another boot":  {self.PID, self.Start, "before"},
		"no process":    {},
	} {
		if p.running() {
			t.Errorf("%s: %+v runs", name, p)
		}
		if err := p.signal(syscall.SIGKILL); err != nil { // would end this test
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestUntil_TellsTheLastWordsOfThisStart(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, logName), []byte("words of an earlier life\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	never := func(context.Context) bool { return false }
	d, err := launch(dir, nil, "/bin/sh", "-c", "echo one; echo the disk is full; echo")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.until(t.Context(), "p", never); err == nil || !strings.Contains(err.Error(), "the disk is full") {
		t.Errorf("a process that ended: %v", err)
	}
	d, err = launch(dir, nil, "/bin/sh", "-c", "exit 1")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.until(t.Context(), "p", never); err == nil || strings.Contains(err.Error(), "full") {
		t.Errorf("a process that said nothing: %v", err)
	}
}

func TestUntil_KillsWhatDoesNotBecomeReady(t *testing.T) {
	d := start(t, "exec sleep 600")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := d.until(ctx, "p", func(context.Context) bool { return false }); err == nil || d.running() {
		t.Errorf("%v, running %t", err, d.running())
	}
}
