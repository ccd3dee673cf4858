//go:build integration

package dev_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/objcache/objcache/test/wait"
)

// stored is the object of a key as the local S3 server keeps it; nil when there is none.
func (p program) stored(key string) []byte {
	p.t.Helper()
	b, err := os.ReadFile(filepath.Join(p.state, "s3", "data", "objcache", key))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		p.t.Fatal(err)
	}
	return b
}

func TestUpload_OnFsyncAndOnCloseExternalStorageHasItWhenTheyReturn(t *testing.T) {
	for mode, atClose := range map[string]bool{"onFsync": false, "onClose": true} {
		t.Run(mode, func(t *testing.T) {
			p := build(t)
			p.run("up", "--upload", mode, "--flush-interval", "1h", "--servers", "2")
			f, err := os.Create(filepath.Join(p.mnt(), "objcache", "f"))
			if err != nil {
				t.Fatal(err)
			}
			body := bytes.Repeat([]byte("0123456789abcdef"), 5000)
			if _, err := f.Write(body); err != nil {
				t.Fatal(err)
			}
			if err := f.Sync(); err != nil {
				t.Fatal(err)
			}
			if got := p.stored("f"); !bytes.Equal(got, body) {
				t.Errorf("after fsync external storage has %d bytes", len(got))
			}
			if _, err := f.Write(body); err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			want := body
			if atClose {
				want = append(append([]byte{}, body...), body...)
			}
			if got := p.stored("f"); !bytes.Equal(got, want) {
				t.Errorf("after close external storage has %d bytes, want %d", len(got), len(want))
			}
		})
	}
}

func TestNames_AreSeenByAnotherMountWithinTheEntryTTL(t *testing.T) {
	p := build(t)
	p.run("up", "--servers", "2")
	other := filepath.Join(t.TempDir(), "other")
	if err := os.Mkdir(other, 0o755); err != nil {
		t.Fatal(err)
	}
	p.run("mount", other)
	t.Cleanup(func() { _ = unix.Unmount(other, unix.MNT_DETACH) }) // gone already when all went well
	here, there := filepath.Join(p.mnt(), "objcache"), filepath.Join(other, "objcache")
	exists := func(name string) bool {
		_, err := os.Stat(filepath.Join(there, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		return err == nil
	}
	if exists("a") {
		t.Fatal("a is there already")
	}
	const ttl = 3 * time.Second // 1 s, and a machine that is busy
	if err := os.WriteFile(filepath.Join(here, "a"), []byte("a"), 0o644); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, ttl, "a created file", func() bool { return exists("a") })
	if err := os.Rename(filepath.Join(here, "a"), filepath.Join(here, "b")); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, ttl, "a renamed file", func() bool { return !exists("a") && exists("b") })
	if err := os.Remove(filepath.Join(here, "b")); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, ttl, "a removed file to be gone", func() bool { return !exists("b") })
	p.run("umount", other)
}
