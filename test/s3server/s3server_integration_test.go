//go:build integration

package s3server

import (
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestStart_ServesABucketUntilStopped(t *testing.T) {
	s := Versitygw(t, "bucket")
	if err := s.CreateBucket(t.Context(), "bucket"); err != nil {
		t.Errorf("create the same bucket again: %v", err)
	}
	for range 2 {
		if err := s.Stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	}
	if err := syscall.Kill(s.Pid(), 0); err != syscall.ESRCH {
		t.Errorf("process %d after stop: %v", s.Pid(), err)
	}
	u, err := url.Parse(s.S3.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	if conn, err := net.Dial("tcp", u.Host); err == nil {
		_ = conn.Close()
		t.Errorf("%s still answers", u.Host)
	}
}

func TestStart_EndedServerIsAnErrorWithItsLog(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "server")
	if err := os.WriteFile(bin, []byte("#!/bin/sh\necho out of order\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := StartVersitygw(t.Context(), Config{Binary: bin, Dir: t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), "out of order") {
		t.Errorf("got %v", err)
	}
}

func TestFind_MissingBinaryIsAnError(t *testing.T) {
	if _, err := Find("OBJCACHE_TEST_NO_SUCH_VARIABLE", "no-such-server"); err == nil {
		t.Error("no error")
	}
}
