package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/fuse"
	"github.com/objcache/objcache/fuse/mounter"
	"github.com/objcache/objcache/server/client"
)

// mountFlags is a mount as the command line describes it.
type mountFlags struct {
	cfg                    mounter.Config
	cacheBytes, memory     byteSize
	readAhead              byteSize
	root                   uint64
	servers                []string
	timeout, unmountWithin time.Duration
	metrics, ready, level  string
	pprof                  bool
	tls                    tlsFiles
}

func newMount() *cobra.Command {
	f := &mountFlags{cfg: mounter.Default()}
	cmd := &cobra.Command{
		Use:   "mount --servers HOST:PORT[,HOST:PORT...] DIR",
		Short: "Mount the buckets at a directory until SIGTERM",
		Long: "Mount the buckets at an empty directory, in the foreground, until SIGTERM, SIGINT or umount(8).\n" +
			"It then flushes what is pending; a second signal cuts programs off that keep the mount busy.",
		Example: "  objcache mount --servers 10.0.0.1:7070,10.0.0.2:7070 /mnt/buckets",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.complete(args[0]); err != nil {
				return err
			}
			logger, err := newLogger(cmd.ErrOrStderr(), f.level)
			if err != nil {
				return err
			}
			return f.run(cmd.Context(), logger)
		},
		ValidArgsFunction: onlyDirs,
	}
	f.register(cmd)
	return cmd
}

func onlyDirs(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveFilterDirs
}

func (f *mountFlags) register(cmd *cobra.Command) {
	f.cacheBytes, f.memory, f.readAhead, f.root = byteSize(f.cfg.CacheBytes), byteSize(f.cfg.MemoryBytes), byteSize(f.cfg.ReadAhead), uint64(f.cfg.Root)
	fs := cmd.Flags()
	fs.StringSliceVar(&f.servers, "servers", nil, "addresses of some servers; they name the rest")
	fs.StringVar(&f.cfg.CacheDir, "cache-dir", "", "directory of the node-local cache on a local disk (default: one for this mountpoint in the user's cache directory)")
	fs.Var(&f.cacheBytes, "cache-bytes", "size of the node-local cache")
	fs.Var(&f.memory, "memory-bytes", "memory for buffers in flight")
	fs.StringVar(&f.cfg.Passthrough, "passthrough", f.cfg.Passthrough, "let the kernel read complete files itself: auto or off")
	fs.StringVar((*string)(&f.cfg.Consistency), "consistency", string(f.cfg.Consistency), "what other mounts see: "+string(fuse.CloseToOpen)+" or "+string(fuse.Strict))
	fs.BoolVar(&f.cfg.AllowOther, "allow-other", f.cfg.AllowOther, "let other users in (needs root, or user_allow_other in /etc/fuse.conf)")
	fs.BoolVar(&f.cfg.ReadOnly, "read-only", false, "refuse every change")
	fs.DurationVar(&f.cfg.EntryTTL, "entry-ttl", f.cfg.EntryTTL, "how late changes of names by other mounts are seen")
	fs.Var(&f.readAhead, "read-ahead", "how far the kernel reads ahead")
	fs.Uint64Var(&f.root, "root", f.root, "inode number of the directory to show")
	fs.StringVar(&f.cfg.Name, "name", f.cfg.Name, "name in the first column of df(1)")
	fs.StringVar(&f.cfg.Node, "node", f.cfg.Node, "name of this node in names of files set aside")
	fs.BoolVar(&f.cfg.Debug, "debug", false, "log every request (implies --log-level debug)")
	fs.DurationVar(&f.timeout, "timeout", 0, "fail operations with EIO when servers do not answer for this long (0: wait)")
	fs.DurationVar(&f.unmountWithin, "unmount-timeout", 30*time.Second, "how long to wait for programs and for flushing at the end")
	fs.StringVar(&f.metrics, "metrics", "", "address for Prometheus, like 127.0.0.1:9101 (default: none)")
	fs.BoolVar(&f.pprof, "pprof", false, "serve the Go profiler below /debug/pprof/, on the mount's socket and on --metrics")
	fs.StringVar(&f.ready, "ready-file", "", "file to write when the mount answers; removed at the end")
	fs.StringVar(&f.level, "log-level", "info", "debug, info, warn or error")
	f.tls.flags(fs)
	must(cmd.MarkFlagRequired("servers"))
	must(cmd.MarkFlagDirname("cache-dir"))
}

// complete turns flags into the configuration.
func (f *mountFlags) complete(dir string) (err error) {
	c := &f.cfg
	c.CacheBytes, c.MemoryBytes, c.ReadAhead, c.Root = int64(f.cacheBytes), int64(f.memory), int64(f.readAhead), objcache.Ino(f.root)
	if c.Mountpoint, err = filepath.Abs(dir); err != nil {
		return err
	}
	if c.Debug {
		f.level = "debug"
	}
	if c.CacheDir == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return fmt.Errorf("no cache directory (name one with --cache-dir): %w", err)
		}
		c.CacheDir = filepath.Join(base, "objcache", "mounts", strings.ReplaceAll(strings.Trim(c.Mountpoint, "/"), "/", "-"))
	}
	if c.CacheDir, err = filepath.Abs(c.CacheDir); err != nil {
		return err
	}
	if f.tls, err = f.tls.absolute(); err != nil {
		return err
	}
	if err := c.Validate(); err != nil {
		return err
	}
	return os.MkdirAll(c.CacheDir, 0o700)
}

// open waits for a server, for as long as an operation would.
func (f *mountFlags) open(ctx context.Context, c client.Config) (*client.Client, error) {
	if f.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.timeout)
		defer cancel()
	}
	return client.Open(ctx, c)
}

func (f *mountFlags) run(ctx context.Context, logger *slog.Logger) (err error) {
	conf, err := f.tls.config()
	if err != nil {
		return err
	}
	debug.SetMemoryLimit(f.cfg.MemoryBytes / 4 * 3) // buffers that are free again are collected before more are made; the rest is for what is not heap
	backend, err := f.open(ctx, client.Config{Servers: f.servers, Timeout: f.timeout, Logger: logger, TLS: conf, Node: f.cfg.Node})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, backend.Close()) }()
	live, err := mounter.Mount(ctx, f.cfg, backend, logger)
	if err != nil {
		return err
	}
	shown, err := f.show(live)
	if err == nil {
		err = untilUnmounted(ctx, live)
		err = errors.Join(err, shown.hide())
	}
	end, cancel := f.bounded(ctx)
	defer cancel()
	return errors.Join(err, live.Unmount(end))
}
