package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/objcache/objcache/dev"
)

func newDevMount(d *devFlags) *cobra.Command {
	return &cobra.Command{
		Use:               "mount DIR",
		Short:             "Mount the cluster at one more empty directory, with a cache of its own",
		Example:           "  mkdir /tmp/second && objcache dev mount /tmp/second",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: onlyDirs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return d.with(cmd, false, func(ctx context.Context, c *dev.Cluster) error { return c.Mount(ctx, args[0]) })
		},
	}
}

func newDevUmount(d *devFlags) *cobra.Command {
	return &cobra.Command{
		Use:               "umount DIR",
		Short:             "Unmount a directory (or a mount by name) and forget it",
		Example:           "  objcache dev umount /tmp/second\n  objcache dev umount mount-1",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: onlyDirs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return d.with(cmd, false, func(ctx context.Context, c *dev.Cluster) error { return c.Umount(ctx, args[0]) })
		},
	}
}
