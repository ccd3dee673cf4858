package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/objcache/objcache/server/external/s3"
	"github.com/objcache/objcache/test/faultproxy"
	"github.com/objcache/objcache/test/s3server"
)

const (
	gib = int64(1) << 30
	// Two buckets, and directories of the mount: one behind the proxy, which counts and slows, and one without it.
	viaProxy, direct = "proxied", "direct"
)

// env is what benchmarks run in.
type env struct {
	options
	down    *cleanup
	dir     string // on disk
	memory  string // on tmpfs
	s3      *s3server.Server
	proxy   *faultproxy.Server
	direct  *s3.Store // the bucket direct
	proxied *s3.Store // the bucket proxied, not through the proxy
	slow    *s3.Store // and through it
	cluster *cluster
	pids    map[string]int // objcache's processes
}

func (e *env) size() int64          { return max(1<<20, gib/e.scale) }
func (e *env) count(n int) int      { return max(1, n/int(e.scale)) }
func (e *env) disk(p string) string { return filepath.Join(e.dir, p) }

func prepare(ctx context.Context, o options, down *cleanup) (*env, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("this needs root: it mounts and drops the page cache")
	}
	for _, p := range []*string{&o.objcache, &o.minio} {
		abs, err := filepath.Abs(*p)
		if err != nil {
			return nil, err
		}
		if _, err := os.Stat(abs); err != nil {
			return nil, fmt.Errorf("%s is missing (make bench builds it): %w", *p, err)
		}
		*p = abs
	}
	e := &env{options: o, down: down, pids: map[string]int{}}
	if err := needS3fs(ctx); err != nil {
		return nil, err
	}
	if err := e.makeDirs(); err != nil {
		return nil, err
	}
	if err := e.openS3(ctx); err != nil {
		return nil, err
	}
	return e, e.openCluster(ctx)
}

// makeDirs checks the space first: caches of up to four mounts and of the servers hold every run's file.
func (e *env) makeDirs() (err error) {
	if err := enough(e.options.dir, e.size()*int64(5*e.runs+5)+gib); err != nil {
		return err
	}
	if err := enough("/dev/shm", e.size()*5+gib); err != nil {
		return err
	}
	if e.dir, err = os.MkdirTemp(e.options.dir, "objcache-bench-"); err != nil {
		return err
	}
	e.down.add("remove "+e.dir, removeAll(e.dir))
	if e.memory, err = os.MkdirTemp("/dev/shm", "objcache-bench-"); err != nil {
		return err
	}
	e.down.add("remove "+e.memory, removeAll(e.memory))
	return nil
}

func (e *env) openS3(ctx context.Context) (err error) {
	e.s3, err = s3server.StartMinIO(ctx, s3server.Config{Binary: e.minio, Dir: e.memory, Bucket: direct})
	if err != nil {
		return err
	}
	e.down.add("stop MinIO", func(context.Context) error { return e.s3.Stop() })
	if e.proxy, err = faultproxy.Start("127.0.0.1:0", e.s3.S3.Endpoint); err != nil {
		return err
	}
	e.down.add("stop the fault proxy", func(context.Context) error { return e.proxy.Close() })
	return e.openStores(ctx)
}

func (e *env) openStores(ctx context.Context) (err error) {
	if err := e.s3.CreateBucket(ctx, viaProxy); err != nil {
		return err
	}
	c := e.s3.S3
	if e.direct, err = s3.Open(ctx, c); err != nil {
		return err
	}
	c.Bucket = viaProxy
	if e.proxied, err = s3.Open(ctx, c); err != nil {
		return err
	}
	c.Endpoint = e.proxy.URL
	e.slow, err = s3.Open(ctx, c)
	return err
}
