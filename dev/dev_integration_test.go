//go:build integration

package dev_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/objcache/objcache/dev"
)

// program is a built objcache with the local S3 server beside it.
type program struct {
	t     *testing.T
	path  string
	state string
}

func build(t *testing.T) program {
	t.Helper()
	gw := os.Getenv("OBJCACHE_VERSITYGW")
	if gw == "" {
		t.Fatal("OBJCACHE_VERSITYGW is not set: run `make test`")
	}
	dir := t.TempDir()
	p := program{t, filepath.Join(dir, "objcache"), filepath.Join(dir, "state")}
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", p.path, "../cmd/objcache").CombinedOutput()
	if err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	if err := os.Symlink(gw, filepath.Join(dir, "versitygw")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_RUNTIME_DIR", filepath.Join(dir, "run"))
	t.Cleanup(func() {
		_, _ = exec.Command(p.path, "dev", "down", "--purge", "--force", "--state", p.state).CombinedOutput() // already down when the test got that far
		_ = unix.Unmount(p.mnt(), unix.MNT_DETACH)
	})
	return p
}

func (p program) mnt() string { return filepath.Join(p.state, "mnt") }

// run runs a dev command that must succeed and returns what it printed to its standard output.
func (p program) run(args ...string) []byte {
	p.t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(p.t.Context(), p.path, append([]string{"dev", "--state", p.state}, args...)...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		p.t.Fatalf("dev %v: %v\n%s", args, err, errs.Bytes())
	}
	return out.Bytes()
}

func (p program) status() dev.Status {
	p.t.Helper()
	var st dev.Status
	if err := json.Unmarshal(p.run("status", "-o", "json"), &st); err != nil {
		p.t.Fatal(err)
	}
	return st
}

func TestDev_LifeOfACluster(t *testing.T) {
	p := build(t)
	if out := p.run("up"); !bytes.Contains(out, []byte(p.mnt())) || !bytes.Contains(out, []byte("secret key")) {
		t.Errorf("up printed %s", out)
	}
	data := make([]byte, 20<<20)
	for i := range data {
		data[i] = byte(rand.Uint32())
	}
	file := filepath.Join(p.mnt(), "objcache", "file")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	compare(t, file, data)

	p.run("kill", "server-1")
	began := time.Now()
	st := p.status()
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("status with a dead server took %v", took)
	}
	if s := st.Servers[1]; s.Name != "server-1" || s.State != "stopped" || s.PID != 0 {
		t.Errorf("a killed server: %+v", s)
	}
	p.run("start", "server-1")
	compare(t, file, data)

	p.run("flush")
	object := filepath.Join(p.state, "s3", "data", "objcache", "file")
	compare(t, object, data)
	if st := p.status(); st.View == "" || st.Servers[1].State != "running" || !st.Servers[1].Ready || st.Mounts[0].State != "running" {
		t.Errorf("status: %+v", st)
	}

	second := filepath.Join(t.TempDir(), "made by mount")
	p.run("mount", second)
	compare(t, filepath.Join(second, "objcache", "file"), data)
	p.run("umount", second)

	p.run("kill", "mount-0")
	p.run("up") // starts what is dead
	compare(t, file, data)
	p.run("down")
	p.run("up")
	compare(t, file, data)
	p.run("down", "--purge")
	if _, err := os.Stat(p.state); !os.IsNotExist(err) {
		t.Errorf("the state directory after a purge: %v", err)
	}
}

func compare(t *testing.T, path string, want []byte) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%s has %d bytes of %d or other ones: %v", path, len(got), len(want), err)
	}
}
