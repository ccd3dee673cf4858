package server

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/failpoint"
	"github.com/objcache/objcache/server/chunk"
	"github.com/objcache/objcache/server/external"
	"github.com/objcache/objcache/server/external/s3"
	"github.com/objcache/objcache/server/replica"
)

// Platform is what a server stands on: a disk, a network and external storage. Fields that are not set are the operating system's and S3's. Whoever
// replaces the disk replaces Disk, Chunks, Lock and Free together.
type Platform struct {
	// Disk holds the state directory: identity, rows and log.
	Disk vfs.FS
	// Chunks holds the bytes of chunks below the state directory; nil: the operating system's, with O_DIRECT where it can.
	Chunks chunk.FS
	// Lock makes a file and takes it for this process alone; Invalid when another has it.
	Lock func(path string) (io.Closer, error)
	// Free is what the disk below a directory has left, bytes.
	Free func(dir string) (int64, error)
	// Listen opens the address for gRPC.
	Listen func(address string) (net.Listener, error)
	// Dial connects to another server; nil: TCP.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// OpenStore connects to a bucket.
	OpenStore func(ctx context.Context, b Bucket) (Store, error)

	// Rows, Log and Bytes change how large the files of rows, log and chunks are; nil: as measured best for a server of its own.
	Rows  func(*pebble.Options)
	Log   func(*replica.Config)
	Bytes func(*chunk.Options)
}

// Store is a bucket that can be asked what it honours.
type Store interface {
	external.Store
	Probe(ctx context.Context, prefix string) (external.Capabilities, error)
}

// Option changes how a server is opened.
type Option func(*Server)

// On opens the server on another platform than the operating system.
func On(p Platform) Option { return func(s *Server) { s.on = p } }

func (p *Platform) setDefaults() {
	if p.Disk == nil {
		p.Disk = vfs.Default
	}
	if p.Lock == nil {
		p.Lock = flock
	}
	if p.Free == nil {
		p.Free = statfs
	}
	if p.Listen == nil {
		p.Listen = func(address string) (net.Listener, error) { return net.Listen("tcp", address) }
	}
	if p.OpenStore == nil {
		p.OpenStore = openS3
	}
	if p.Rows == nil {
		p.Rows = func(*pebble.Options) {}
	}
	if p.Log == nil {
		p.Log = func(*replica.Config) {}
	}
	if p.Bytes == nil {
		p.Bytes = func(*chunk.Options) {}
	}
}

// flock is freed by the kernel, however the process ends.
func flock(path string) (io.Closer, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(objcache.Errorf(objcache.Invalid, "%s is in use by another process", path), f.Close())
	}
	return f, nil
}

func statfs(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return int64(st.Bavail) * st.Bsize, nil
}

func openS3(ctx context.Context, b Bucket) (Store, error) {
	var ca []byte
	if b.CABundle != "" {
		var err error
		if ca, err = os.ReadFile(b.CABundle); err != nil {
			return nil, objcache.Errorf(objcache.Invalid, "bucket %s: caBundle: %w", b.DirName, err)
		}
	}
	s, err := s3.Open(ctx, s3.Config{
		Bucket: b.BucketName, Endpoint: b.Endpoint, Region: b.Region, AccessKey: b.AccessKey, SecretKey: b.SecretKey, CABundle: ca, PathStyle: b.PathStyle,
		ResponseTimeout: time.Duration(failpoint.Number(failpoint.S3ResponseMillis)) * time.Millisecond,
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}
