package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/objcache/objcache/dev"
)

func newDevKill(d *devFlags) *cobra.Command {
	destroy := false
	cmd := d.onName("kill", "Kill a process (-9) and return when it is gone", "  objcache dev kill server-1\n  objcache dev kill --destroy server-1",
		func(c *dev.Cluster, ctx context.Context, name string) error {
			if destroy {
				return c.Destroy(ctx, name)
			}
			return c.Kill(ctx, name)
		})
	cmd.Flags().BoolVar(&destroy, "destroy", false, "also remove everything on the server's disk: what is not persisted and only there is lost")
	return cmd
}

func newDevStop(d *devFlags) *cobra.Command {
	return d.onName("stop", "Stop a process (SIGTERM) and return when it is gone", "  objcache dev stop server-1", (*dev.Cluster).Stop)
}

func newDevStart(d *devFlags) *cobra.Command {
	return d.onName("start", "Start a process that was stopped or killed and return when it answers", "  objcache dev start server-1", (*dev.Cluster).Start)
}

// onName is a command for one or several processes.
func (d *devFlags) onName(verb, short, example string, do func(*dev.Cluster, context.Context, string) error) *cobra.Command {
	return &cobra.Command{
		Use:               verb + " NAME...",
		Short:             short,
		Long:              short + ".\nNames are server-0, server-1, ..., mount-0, ... and s3.",
		Example:           example,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: d.names,
		RunE: func(cmd *cobra.Command, args []string) error {
			return d.with(cmd, false, func(ctx context.Context, c *dev.Cluster) error {
				for _, name := range args {
					if err := do(c, ctx, name); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
}
