package dev

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/objcache/objcache"
)

const s3Name = "s3"

// s3Member is the local S3 server, versitygw with its POSIX backend: a bucket is a directory of files.
type s3Member struct{ c *Cluster }

func (s s3Member) name() string                { return s3Name }
func (s s3Member) dir() string                 { return filepath.Join(s.c.dir, "s3") }
func (s s3Member) ended(context.Context) error { return nil }
func (s s3Spec) endpoint() string              { return "http://" + s.Address }

func (s s3Member) missing() error {
	return objcache.Errorf(objcache.NotExist, "versitygw, the local S3 server (build it with `make build`, or name an S3 with --s3)")
}

// hasXattr reports whether the disk keeps extended attributes; without them versitygw keeps metadata in a directory beside the data.
func hasXattr(dir string) bool {
	return unix.Setxattr(dir, "user.objcache-test", []byte("1"), 0) == nil && unix.Removexattr(dir, "user.objcache-test") == nil
}

func (s s3Member) start(ctx context.Context) error {
	if s.c.prog.Versitygw == "" {
		return s.missing()
	}
	data := filepath.Join(s.dir(), "data")
	if err := os.MkdirAll(data, 0o700); err != nil {
		return err
	}
	spec := s.c.spec.S3
	args := []string{"--port", spec.Address, "--health", "/health", "--keep-alive", "--quiet", "posix"}
	if !hasXattr(data) {
		sidecar := filepath.Join(s.dir(), "sidecar")
		if err := os.MkdirAll(sidecar, 0o700); err != nil {
			return err
		}
		args = append(args, "--sidecar", sidecar)
	}
	// In the environment, not on the command line, where everybody reads them.
	env := []string{"ROOT_ACCESS_KEY=" + spec.AccessKey, "ROOT_SECRET_KEY=" + spec.SecretKey}
	d, err := launch(s.dir(), env, s.c.prog.Versitygw, append(args, data)...)
	if err != nil {
		return err
	}
	if err := d.until(ctx, s3Name, func(ctx context.Context) bool { return healthy(ctx, spec.endpoint()+"/health") }); err != nil {
		return err
	}
	for _, b := range s.c.spec.Buckets {
		if err := s.c.store.Make(ctx, b); err != nil {
			return errors.Join(err, d.kill())
		}
	}
	return nil
}

func healthy(ctx context.Context, url string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}
