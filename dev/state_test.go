package dev

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/objcache/objcache"
)

func TestClaim_RefusesWhatIsNotOurs(t *testing.T) {
	foreign := t.TempDir()
	if err := os.WriteFile(filepath.Join(foreign, "thesis.txt"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, markerName), []byte("99\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		dir    string
		create bool
		kind   objcache.Kind
	}{
		"a directory with files":      {foreign, true, objcache.NotEmpty},
		"another layout":              {other, true, objcache.Invalid},
		"no cluster":                  {t.TempDir(), false, objcache.NotExist},
		"no directory":                {filepath.Join(foreign, "none"), false, objcache.NotExist},
		"an empty directory is fine":  {t.TempDir(), true, objcache.Unknown},
		"a missing directory is made": {filepath.Join(t.TempDir(), "a", "b"), true, objcache.Unknown},
	} {
		if err := claim(c.dir, c.create); objcache.KindOf(err) != c.kind {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPurge_KeepsADirectoryWithoutMarker(t *testing.T) {
	c := open(t)
	if err := os.Remove(filepath.Join(c.dir, markerName)); err != nil {
		t.Fatal(err)
	}
	if err := c.Down(t.Context(), DownRequest{Purge: true, Force: true}); !errors.Is(err, objcache.Invalid) {
		t.Errorf("purge without the marker: %v", err)
	}
	if _, err := os.Stat(c.dir); err != nil {
		t.Errorf("the directory: %v", err)
	}
}

func TestPurge_DeletesOurDirectory(t *testing.T) {
	c := open(t)
	if err := c.Down(t.Context(), DownRequest{Purge: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(c.dir); !os.IsNotExist(err) {
		t.Errorf("the directory after a purge: %v", err)
	}
}

func TestOpen_SecondCommandWaits(t *testing.T) {
	c := open(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*lockRetry)
	defer cancel()
	if _, err := Open(ctx, c.dir, true, Programs{}, storage{}, io.Discard); !errors.Is(err, objcache.Unavailable) {
		t.Errorf("open while another has it: %v", err)
	}
	got := make(chan error, 1)
	var out strings.Builder
	go func() {
		second, err := Open(t.Context(), c.dir, true, Programs{}, storage{}, &out)
		if err == nil {
			second.Close()
		}
		got <- err
	}()
	c.Close()
	if err := <-got; err != nil {
		t.Errorf("open after the first is done: %v", err)
	}
}

func TestUp_KeepsPortsAndKeys(t *testing.T) {
	c := open(t)
	r := UpRequest{Settings: c.Settings(), Bucket: "b", DirName: "d"}
	if err := c.plan(r); err != nil {
		t.Fatal(err)
	}
	if err := c.saveSpec(); err != nil {
		t.Fatal(err)
	}
	kept, err := loadSpec(c.dir)
	if err != nil {
		t.Fatal(err)
	}
	if kept.S3.SecretKey == "" || kept.S3.SecretKey != c.spec.S3.SecretKey || kept.Servers[2] != c.spec.Servers[2] {
		t.Errorf("kept %+v of %+v", kept, c.spec)
	}
	for _, name := range []string{specName, bucketsName} {
		st, err := os.Stat(filepath.Join(c.dir, name))
		if err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s, which holds keys: %v, %v", name, st.Mode(), err)
		}
	}
	r.Settings.Servers = 5
	if err := c.plan(r); !errors.Is(err, objcache.Invalid) {
		t.Errorf("another number of servers: %v", err)
	}
	r.Settings = c.Settings()
	r.Settings.FlushInterval = time.Second
	if err := c.plan(r); err != nil || c.Settings().FlushInterval != time.Second {
		t.Errorf("another flush interval while nothing runs: %v", err)
	}
}

func TestUp_BadInputIsSaidBeforeAnythingStarts(t *testing.T) {
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	noKeys := objcache.Errorf(objcache.Permission, "wrong keys")
	bucket := []Bucket{{DirName: "d", BucketName: "b", Endpoint: "http://s3.invalid"}}
	for name, c := range map[string]struct {
		r    UpRequest
		kind objcache.Kind
	}{
		"no local S3 server":     {UpRequest{Settings: DefaultSettings(), Bucket: "b", DirName: "b"}, objcache.NotExist},
		"keys":                   {UpRequest{Settings: DefaultSettings(), Buckets: bucket}, objcache.Permission},
		"mountpoint with files":  {UpRequest{Settings: DefaultSettings(), Buckets: bucket, Mount: full}, objcache.NotEmpty},
		"mountpoint nowhere":     {UpRequest{Settings: DefaultSettings(), Buckets: bucket, Mount: full + "/none/none"}, objcache.NotExist},
		"something mounted":      {UpRequest{Settings: DefaultSettings(), Buckets: bucket, Mount: "/proc"}, objcache.Exist},
		"no servers":             {UpRequest{Settings: Settings{Servers: 0}, Buckets: bucket}, objcache.Invalid},
		"an unknown consistency": {UpRequest{Settings: Settings{Servers: 1, Upload: "background", CacheBytes: 1 << 30, Consistency: "x"}}, objcache.Invalid},
	} {
		cl := open(t)
		cl.store = storage{check: noKeys}
		err := cl.Up(t.Context(), c.r)
		if objcache.KindOf(err) != c.kind || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
		if !cl.isNew() {
			t.Errorf("%s: the cluster was kept", name)
		}
	}
}

func TestUp_FailedStartLeavesNothing(t *testing.T) {
	c := open(t)
	c.prog.Objcache = script(t, "echo listening; echo 'bad disk' >&2; exit 3")
	err := c.Up(t.Context(), UpRequest{Settings: DefaultSettings(), Buckets: []Bucket{{DirName: "d", BucketName: "b"}}})
	if err == nil || !strings.Contains(err.Error(), "bad disk") {
		t.Errorf("up with servers that end at once: %v", err)
	}
	if got, err := loadSpec(c.dir); err != nil || len(got.Servers) != 0 {
		t.Errorf("kept %+v, %v", got, err)
	}
	left, err := filepath.Glob(filepath.Join(c.dir, "servers/*/state"))
	if err != nil || len(left) > 0 {
		t.Errorf("state is left: %v, %v", left, err)
	}
}

// storage is a Storage that always says the same.
type storage struct{ check error }

func (storage) Make(context.Context, Bucket) error    { return nil }
func (s storage) Check(context.Context, Bucket) error { return s.check }

func open(t *testing.T) *Cluster {
	t.Helper()
	c, err := Open(t.Context(), filepath.Join(t.TempDir(), "state"), true, Programs{}, storage{}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func script(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}
