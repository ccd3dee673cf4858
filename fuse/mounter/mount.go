// Package mounter assembles one mount: it checks the mountpoint, opens the cache, recovers what a killed mount left, and serves the kernel.
// It promises that every unmount ends by a deadline and that nothing acknowledged is lost between two mounts with the same cache directory.
// It does not know what the backend is.
package mounter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	gofuse "github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/fuse"
	"github.com/objcache/objcache/fuse/cache"
)

const (
	maxWrite      = 1 << 20 // bytes of one request
	maxBackground = 64      // read-ahead and asynchronous requests the kernel keeps in flight
)

// Live is a file system the kernel shows.
type Live struct {
	cfg    Config
	log    *slog.Logger
	fs     *fuse.FS
	store  *cache.Store
	server *gofuse.Server
	minor  uint32        // of the device: the number of the connection
	served chan struct{} // closed when the kernel has let go
}

// Mount mounts and returns when the file system answers. ctx bounds the recovery of an earlier process's writes, not the mount.
// Whoever mounts must Unmount.
func Mount(ctx context.Context, cfg Config, backend fuse.Backend, logger *slog.Logger) (*Live, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := checkMountpoint(cfg.Mountpoint); err != nil {
		return nil, err
	}
	store, left, err := cache.Open(cache.Config{Dir: cfg.CacheDir, Bytes: cfg.CacheBytes, Logger: logger})
	if err != nil {
		return nil, err
	}
	m := &Live{cfg: cfg, log: logger, store: store, served: make(chan struct{})}
	m.fs = fuse.New(fuse.Config{
		Root: cfg.Root, Consistency: cfg.Consistency, Passthrough: cfg.Passthrough == "auto", EntryTTL: cfg.EntryTTL,
		MemoryBytes: cfg.MemoryBytes, Node: cfg.Node,
	}, backend, store, logger)
	if err := m.fs.Recover(ctx, left); err != nil {
		logger.Error("writes of an earlier process could not be committed yet", "err", err)
	}
	if err := m.serve(); err != nil {
		m.fs.Kill()
		store.Close()
		return nil, err
	}
	return m, nil
}

func (m *Live) serve() error {
	server, err := gofuse.NewServer(m.fs, m.cfg.Mountpoint, m.options())
	if err != nil {
		return objcache.Errorf(objcache.IO, "mount %s: %w", m.cfg.Mountpoint, err)
	}
	m.server = server
	go func() {
		defer close(m.served)
		server.Serve()
	}()
	if err := server.WaitMount(); err != nil {
		_ = unix.Unmount(m.cfg.Mountpoint, unix.MNT_DETACH)
		return objcache.Errorf(objcache.IO, "mount %s: %w", m.cfg.Mountpoint, err)
	}
	if line, err := lastMount(m.cfg.Mountpoint); err == nil && line != nil {
		m.minor = line.minor
		m.raiseReadAhead()
	}
	on, why := m.passthrough()
	m.log.Info("mounted", "mountpoint", m.cfg.Mountpoint, "consistency", m.cfg.Consistency, "passthrough", on, "why", why)
	return nil
}

func (m *Live) passthrough() (bool, string) {
	s := m.fs.Status()
	return s.Passthrough.On, s.Passthrough.Why
}

func (m *Live) options() *gofuse.MountOptions {
	logger := log.New(io.Discard, "", 0)
	if m.cfg.Debug {
		logger = slog.NewLogLogger(m.log.Handler(), slog.LevelDebug)
	}
	flags := uintptr(unix.MS_NODEV | unix.MS_NOSUID)
	if m.cfg.ReadOnly {
		flags |= unix.MS_RDONLY
	}
	root := os.Geteuid() == 0
	o := &gofuse.MountOptions{
		AllowOther: m.cfg.AllowOther, Options: []string{"default_permissions"}, FsName: m.cfg.Name, Name: "objcache",
		MaxWrite: maxWrite, MaxReadAhead: maxWrite, MaxBackground: maxBackground, MaxInflightRequestBytes: int(m.cfg.MemoryBytes / 2),
		DisableSplice: true, DirectMount: root, DirectMountStrict: root, DirectMountFlags: flags, Debug: m.cfg.Debug, Logger: logger,
		PanicHandler: func(v any) gofuse.Status {
			m.log.Error("a request met a broken invariant and is answered EIO", "panic", v, "stack", string(debug.Stack()))
			return gofuse.EIO
		},
		EnableLocks: true,
		// Pages are dropped when this mount says so: close-to-open decides, not mtimes.
		DisabledCapabilities: gofuse.CAP_AUTO_INVAL_DATA,
		ExtraCapabilities:    gofuse.CAP_HANDLE_KILLPRIV_V2 | gofuse.CAP_DIRECT_IO_ALLOW_MMAP | gofuse.CAP_ASYNC_DIO,
	}
	if m.cfg.ReadOnly && !root {
		o.Options = append(o.Options, "ro")
	}
	return o
}

// raiseReadAhead lets the kernel ask for more than 128 KiB ahead. Without the right to, reads are slower and nothing else.
func (m *Live) raiseReadAhead() {
	path := fmt.Sprintf("/sys/class/bdi/0:%d/read_ahead_kb", m.minor)
	if err := os.WriteFile(path, fmt.Appendf(nil, "%d", m.cfg.ReadAhead>>10), 0); err != nil {
		m.log.Debug("the kernel's read-ahead stays as it is", "err", err)
	}
}

// FS is the file system, for metrics: it is a prometheus.Collector.
func (m *Live) FS() *fuse.FS { return m.fs }

// Wait returns when the kernel has let go of the file system, by Unmount or by somebody's umount(8).
func (m *Live) Wait() { <-m.served }

// retryBusy is how long Unmount waits before it asks a busy mount again.
const retryBusy = 20 * time.Millisecond

// Unmount takes the mount down, flushes what is pending and lets go of the cache. When ctx ends first, programs that still use the mount are cut off
// (the connection is aborted, the mount detached), and what could not be flushed stays in the cache directory for the next mount; the error says so.
func (m *Live) Unmount(ctx context.Context) error {
	err := m.detach(ctx)
	<-m.served
	if ferr := m.fs.Close(ctx); err == nil {
		err = ferr
	}
	if cerr := m.store.Close(); err == nil {
		err = cerr
	}
	return err
}

func (m *Live) detach(ctx context.Context) error {
	tick := time.NewTicker(retryBusy)
	defer tick.Stop()
	for {
		err := unix.Unmount(m.cfg.Mountpoint, 0)
		if err == nil || err == unix.EINVAL { // EINVAL: somebody else has unmounted it
			return nil
		}
		select {
		case <-m.served:
			return nil
		case <-tick.C:
		case <-ctx.Done():
			aerr := m.Abort()
			return objcache.Errorf(objcache.Unavailable, "%s was busy (%w) until the deadline; it was cut off (%v)", m.cfg.Mountpoint, err, aerr)
		}
	}
}

// Abort cuts every program off that uses the mount (ENOTCONN) and detaches it: the way out of a hang.
func (m *Live) Abort() error {
	// Either is enough; the first needs fusectl mounted, the second is refused while another mount lies on top.
	aerr := os.WriteFile(fmt.Sprintf("/sys/fs/fuse/connections/%d/abort", m.minor), []byte("1"), 0)
	uerr := unix.Unmount(m.cfg.Mountpoint, unix.MNT_FORCE|unix.MNT_DETACH)
	if aerr != nil && uerr != nil {
		return objcache.Errorf(objcache.IO, "abort %s: %w", m.cfg.Mountpoint, errors.Join(aerr, uerr))
	}
	return nil
}

// Kill ends the mount as kill -9 of its process would: nothing is flushed, programs get ENOTCONN. For tests and as the last resort.
func (m *Live) Kill() error {
	err := m.Abort()
	<-m.served
	m.fs.Kill()
	if cerr := m.store.Close(); err == nil {
		err = cerr
	}
	return err
}

// Status is the mount as `objcache status` shows it.
type Status struct {
	Mountpoint string `json:"mountpoint"`
	fuse.Status
}

// Status returns the state of this moment.
func (m *Live) Status() Status { return Status{m.cfg.Mountpoint, m.fs.Status()} }
