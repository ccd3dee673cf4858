package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/dev"
)

func newDevDown(d *devFlags) *cobra.Command {
	var r dev.DownRequest
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Unmount, persist everything, stop all processes",
		Long: "Unmount, persist everything that is dirty, and stop all processes. What could not be persisted is named; it stays in the state directory\n" +
			"until the next `objcache dev up`. --purge deletes the state directory, the local S3 server's data included.",
		Example: "  objcache dev down\n  objcache dev down --purge",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return d.with(cmd, false, func(ctx context.Context, c *dev.Cluster) error {
				p := newProgress(cmd.ErrOrStderr(), "persisted")
				defer p.end()
				r.Progress = func(f dev.Flushed) { p.show(f.FilesDone, f.FilesTotal, f.BytesDone, f.BytesTotal) }
				return c.Down(ctx, r)
			})
		},
	}
	cmd.Flags().BoolVar(&r.Purge, "purge", false, "delete the state directory")
	cmd.Flags().BoolVar(&r.Force, "force", false, "purge also what is not persisted")
	return cmd
}

func newDevFlush(d *devFlags) *cobra.Command {
	return &cobra.Command{
		Use:     "flush",
		Short:   "Persist everything that is dirty at the servers",
		Example: "  objcache dev flush",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return d.with(cmd, false, func(ctx context.Context, c *dev.Cluster) error {
				p := newProgress(cmd.ErrOrStderr(), "persisted")
				all, err := c.Flush(ctx, func(f dev.Flushed) { p.show(f.FilesDone, f.FilesTotal, f.BytesDone, f.BytesTotal) })
				p.end()
				for _, pr := range all.Problems {
					fmt.Fprintf(cmd.ErrOrStderr(), "not persisted: %s: %s\n", pr.Path, pr.Error)
				}
				if err == nil && len(all.Problems) > 0 {
					err = objcache.Errorf(objcache.IO, "%d files could not be persisted", len(all.Problems))
				}
				return err
			})
		},
	}
}
