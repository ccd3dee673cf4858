// Package s3server runs real S3 servers, versitygw and MinIO, as child processes for tests and benchmarks. It promises that
// a started server answers, that its bucket exists, and that no server outlives the process that started it. It does not
// know what is stored, and never skips: a missing binary is a failure.
package s3server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/dev"
	"github.com/objcache/objcache/server/external/s3"
	"golang.org/x/sys/unix"
)

// Config says what to start. Dir must exist and is the caller's to remove.
type Config struct {
	Binary string // path of the server's executable
	Dir    string // holds the data, and log.txt
	Bucket string // made once the server answers; "" makes none
}

// Server is one running server on a loopback port.
type Server struct {
	// S3 opens the bucket: endpoint and keys are filled in.
	S3  s3.Config
	log string
	p   *process
}

// Keys of every server started here.
const (
	AccessKey = "objcache-test"
	SecretKey = "objcache-test-secret"
)

// StartVersitygw starts a versitygw with its POSIX backend.
func StartVersitygw(ctx context.Context, c Config) (*Server, error) {
	data := filepath.Join(c.Dir, "data")
	if err := os.MkdirAll(data, 0o755); err != nil {
		return nil, err
	}
	posix := []string{"posix"}
	if !hasXattr(data) {
		sidecar := filepath.Join(c.Dir, "sidecar")
		if err := os.MkdirAll(sidecar, 0o755); err != nil {
			return nil, err
		}
		posix = append(posix, "--sidecar", sidecar)
	}
	return start(ctx, c, "/health", func(addr string) *exec.Cmd {
		args := append([]string{"--access", AccessKey, "--secret", SecretKey, "--port", addr, "--health", "/health", "--keep-alive", "--quiet"}, posix...)
		return exec.Command(c.Binary, append(args, data)...)
	})
}

// StartMinIO starts a MinIO on one directory. MinIO is only ever run, never linked.
func StartMinIO(ctx context.Context, c Config) (*Server, error) {
	data := filepath.Join(c.Dir, "data")
	if err := os.MkdirAll(data, 0o755); err != nil {
		return nil, err
	}
	return start(ctx, c, "/minio/health/cluster", func(addr string) *exec.Cmd {
		cmd := exec.Command(c.Binary, "server", "--quiet", "--address", addr, data)
		cmd.Env = append(os.Environ(), "MINIO_ROOT_USER="+AccessKey, "MINIO_ROOT_PASSWORD="+SecretKey,
			"MINIO_BROWSER=off", "MINIO_UPDATE=off", "MINIO_CALLHOME_ENABLE=off", "HOME="+c.Dir)
		return cmd
	})
}

// startTries is how often another port is taken after the free one was gone before the server came to it.
const startTries = 5

func start(ctx context.Context, c Config, health string, command func(addr string) *exec.Cmd) (*Server, error) {
	var errs error
	for range startTries {
		s, err := startOnce(ctx, c, health, command)
		if err == nil {
			return s, s.makeBucket(ctx, c.Bucket)
		}
		errs = errors.Join(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errs
}

func startOnce(ctx context.Context, c Config, health string, command func(addr string) *exec.Cmd) (*Server, error) {
	addrs, err := dev.FreeTestAddresses(1)
	if err != nil {
		return nil, err
	}
	addr := addrs[0]
	log := filepath.Join(c.Dir, "log.txt")
	p, err := startProcess(command(addr), log)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Binary, err)
	}
	s := &Server{
		S3:  s3.Config{Bucket: c.Bucket, Endpoint: "http://" + addr, AccessKey: AccessKey, SecretKey: SecretKey},
		log: log, p: p,
	}
	if err := s.waitReady(ctx, health); err != nil {
		return nil, errors.Join(err, s.Stop(), errors.New(s.Log()))
	}
	return s, nil
}

// waitReady polls the health page until it says 200.
func (s *Server) waitReady(ctx context.Context, health string) error {
	return s.until(ctx, func() (bool, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.S3.Endpoint+health, nil)
		if err != nil {
			return true, err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return false, err
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK, nil
	})
}

func (s *Server) makeBucket(ctx context.Context, bucket string) error {
	if bucket == "" {
		return nil
	}
	if err := s.CreateBucket(ctx, bucket); err != nil {
		return errors.Join(err, s.Stop())
	}
	return nil
}

// CreateBucket makes one more bucket; one that exists is success.
func (s *Server) CreateBucket(ctx context.Context, bucket string) error {
	c := s.S3
	c.Bucket = bucket
	st, err := s3.Open(ctx, c)
	if err != nil {
		return err
	}
	return s.until(ctx, func() (bool, error) {
		err := st.CreateBucket(ctx)
		return objcache.KindOf(err) != objcache.Unavailable, err // MinIO calls itself healthy a moment too early
	})
}

// until calls f every 20 ms until it is done, the process is gone or 60 s have passed.
func (s *Server) until(ctx context.Context, f func() (done bool, err error)) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		done, err := f()
		if done {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("server at %s is not ready: %w (%w)", s.S3.Endpoint, ctx.Err(), err)
		case <-s.p.done:
			return fmt.Errorf("server at %s has ended: %w", s.S3.Endpoint, s.p.err)
		case <-tick.C:
		}
	}
}

// Pid is the server's process id.
func (s *Server) Pid() int { return s.p.cmd.Process.Pid }

// Stop kills the server and waits until it is gone. Stopping twice is harmless.
func (s *Server) Stop() error { return s.p.stop() }

// Log is what the server printed.
func (s *Server) Log() string {
	b, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func hasXattr(dir string) bool {
	return unix.Setxattr(dir, "user.objcache-test", []byte("1"), 0) == nil && unix.Removexattr(dir, "user.objcache-test") == nil
}
