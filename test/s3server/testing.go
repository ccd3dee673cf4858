package s3server

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Versitygw starts a versitygw with one bucket for a test and stops it at the test's end.
func Versitygw(t testing.TB, bucket string) *Server {
	t.Helper()
	return forTest(t, "OBJCACHE_VERSITYGW", "versitygw", bucket, StartVersitygw)
}

// MinIO starts a MinIO with one bucket for a test and stops it at the test's end.
func MinIO(t testing.TB, bucket string) *Server {
	t.Helper()
	return forTest(t, "OBJCACHE_MINIO", "minio", bucket, StartMinIO)
}

func forTest(t testing.TB, env, name, bucket string, start func(context.Context, Config) (*Server, error)) *Server {
	t.Helper()
	bin, err := Find(env, name)
	if err != nil {
		t.Fatal(err)
	}
	s, err := start(t.Context(), Config{Binary: bin, Dir: t.TempDir(), Bucket: bucket})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("%s: %s", name, s.Log())
		}
	})
	return s
}

// Find locates a server's executable: the environment variable env, bin/ of a directory above the working directory, PATH.
func Find(env, name string) (string, error) {
	if bin := os.Getenv(env); bin != "" {
		return exec.LookPath(bin)
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if bin, err := exec.LookPath(filepath.Join(dir, "bin", name)); err == nil {
			return bin, nil
		}
		if filepath.Dir(dir) == dir {
			break
		}
		dir = filepath.Dir(dir)
	}
	bin, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%s is neither named by %s nor in bin/ (build it in hack/%s): %w", name, env, name, err)
	}
	return bin, nil
}
