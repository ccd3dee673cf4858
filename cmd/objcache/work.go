package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/fuse/mounter"
	"github.com/objcache/objcache/server/client"
)

func newFlush() *cobra.Command {
	return &cobra.Command{
		Use:   "flush PATH",
		Short: "Persist a file or directory of a mount to its bucket now",
		Long: "Persist a file, or a directory with all below it, to external storage and return when it is there.\n" +
			"PATH is inside a mount of this machine; the mountpoint itself stands for everything in the cluster.\n" +
			"Exits non-zero and names the files that could not be persisted.",
		Example: "  objcache flush /mnt/buckets/models/run-17",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := syncPath(args[0]); err != nil {
				return err
			}
			return work(cmd, args[0], rpc.WorkRequest_FLUSH, "persisted")
		},
	}
}

func newWarm() *cobra.Command {
	return &cobra.Command{
		Use:   "warm PATH",
		Short: "Bring a file or directory of a mount into the servers' cache",
		Long: "Fetch a file, or a directory with all below it, from external storage into the servers' cache.\n" +
			"PATH is inside a mount of this machine. Exits non-zero and names the files that could not be fetched.",
		Example: "  objcache warm /mnt/buckets/datasets/imagenet",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return work(cmd, args[0], rpc.WorkRequest_WARM, "warmed")
		},
	}
}

func newRefresh() *cobra.Command {
	return &cobra.Command{
		Use:   "refresh PATH",
		Short: "Look for changes made in the bucket behind objcache's back now",
		Long: "List external storage again now, instead of when externalTTL has passed: a directory (not those below it), the directory of a file,\n" +
			"or, for the mountpoint, the top of every bucket.",
		Example: "  objcache refresh /mnt/buckets/datasets",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			c, ino, err := connect(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, c.Close()) }()
			return c.Refresh(cmd.Context(), ino)
		},
	}
}

// connect opens a session with the servers of the mount that path is in.
func connect(ctx context.Context, path string) (*client.Client, objcache.Ino, error) {
	r, ino, err := mounter.Find(path)
	if err != nil {
		return nil, 0, err
	}
	conf, err := tlsFiles{r.CAFile, r.CertFile, r.KeyFile}.config()
	if err != nil {
		return nil, 0, err
	}
	logger, err := newLogger(os.Stderr, "error")
	if err != nil {
		return nil, 0, err
	}
	c, err := client.Open(ctx, client.Config{Servers: r.Servers, Logger: logger, TLS: conf})
	return c, ino, err
}

func work(cmd *cobra.Command, path string, verb rpc.WorkRequest_Verb, done string) (err error) {
	c, ino, err := connect(cmd.Context(), path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	p := newProgress(cmd.ErrOrStderr(), done)
	var problems []*rpc.Problem
	err = c.Work(cmd.Context(), verb, ino, func(r *rpc.Progress) {
		problems = r.GetProblems()
		p.show(r.GetFilesDone(), r.GetFilesTotal(), r.GetBytesDone(), r.GetBytesTotal())
	})
	p.end()
	if err != nil {
		return err
	}
	for _, pr := range problems {
		fmt.Fprintf(cmd.ErrOrStderr(), "not %s: %s: %s\n", done, pr.GetPath(), pr.GetError())
	}
	if len(problems) > 0 {
		return objcache.Errorf(objcache.IO, "%d files could not be %s", len(problems), done)
	}
	return nil
}

// syncPath commits what this node still holds back of a file, or of all files of the mount that a directory is in.
func syncPath(path string) (err error) {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if !st.IsDir() {
		return f.Sync()
	}
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	return nil
}
