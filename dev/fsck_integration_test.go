//go:build integration

package dev_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// fsckResult is what `objcache fsck -o json` prints.
type fsckResult struct {
	Findings []struct {
		Code, Severity, Path, Text string
		Bytes                      int64
	}
	Repairs []struct {
		Code, Path string
		Lost       bool
	}
	Clean bool
}

// fsck runs a check and returns its exit code.
func (p program) fsck(args ...string) (r fsckResult, code int) {
	p.t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(p.t.Context(), p.path, append(args, "-o", "json")...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		code = exit.ExitCode()
	case err != nil:
		p.t.Fatal(err)
	}
	if code == 2 {
		p.t.Logf("%v: %s", args, errs.Bytes())
		return r, code
	}
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		p.t.Fatalf("%v: %v\n%s\n%s", args, err, out.Bytes(), errs.Bytes())
	}
	return r, code
}

// TestFsck_OfProcesses: servers that work, were killed, and lost bytes on their disks.
func TestFsck_OfProcesses(t *testing.T) {
	p := build(t)
	p.run("up", "--servers", "2", "--flush-interval", "1h")
	data := make([]byte, 3<<20)
	for i := range data {
		data[i] = byte(rand.Uint32())
	}
	for _, name := range []string{"kept", "lost"} {
		if err := os.WriteFile(filepath.Join(p.mnt(), "objcache", name), data[:1<<20], 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p.run("flush")
	if err := os.WriteFile(filepath.Join(p.mnt(), "objcache", "lost"), data[1<<20:], 0o600); err != nil {
		t.Fatal(err)
	}
	dev := []string{"dev", "--state", p.state, "fsck"}
	if r, code := p.fsck(dev...); code != 0 || !r.Clean {
		t.Errorf("while they work: exit %d, %+v", code, r)
	}
	p.run("kill", "server-0")
	if _, code := p.fsck(dev...); code != 2 {
		t.Errorf("with one of two servers: exit %d, want 2", code)
	}
	p.run("kill", "server-1")
	state := func(n string) string { return filepath.Join(p.state, "servers", n, "state") }
	if r, code := p.fsck("fsck", "--verify", "--state", state("server-0"), "--state", state("server-1")); code != 0 {
		t.Errorf("after they were killed: exit %d, %+v", code, r)
	}
	p.rot(data[1<<20:][100<<10:][:1000])
	r, code := p.fsck(append(dev, "--verify")...)
	if code != 1 || len(r.Findings) == 0 || r.Findings[0].Code != "extent-rotten" || r.Findings[0].Path != "/objcache/lost" {
		t.Errorf("with a byte flipped: exit %d, %+v", code, r)
	}
	p.run("start", "server-0", "server-1")
	if r, code := p.fsck(append(dev, "--verify", "--repair", "--revert-lost")...); code != 0 || len(r.Repairs) != 1 || r.Repairs[0].Path != "/objcache/lost" || !r.Repairs[0].Lost {
		t.Errorf("repair: exit %d, %+v", code, r)
	}
	if r, code := p.fsck(append(dev, "--verify")...); code != 0 {
		t.Errorf("after the repair: exit %d, %+v", code, r)
	}
	for name, want := range map[string][]byte{"kept": data[:1<<20], "lost": data[:1<<20]} {
		if got, err := os.ReadFile(filepath.Join(p.mnt(), "objcache", name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
}

// rot changes a byte wherever the servers' chunk files hold these.
func (p program) rot(of []byte) {
	p.t.Helper()
	files, err := filepath.Glob(filepath.Join(p.state, "servers", "*", "state", "group-*", "chunks", "*"))
	if err != nil {
		p.t.Fatal(err)
	}
	found := 0
	for _, path := range files {
		raw, err := os.ReadFile(path)
		if err != nil {
			p.t.Fatal(err)
		}
		if i := bytes.Index(raw, of); i >= 0 {
			found++
			raw[i]++
			if err := os.WriteFile(path, raw, 0o600); err != nil {
				p.t.Fatal(err)
			}
		}
	}
	if found == 0 {
		p.t.Fatal("the bytes are on no disk")
	}
}
