package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/objcache/objcache/dev"
	"github.com/objcache/objcache/server/fsck/online"
)

func newDevFsck(d *devFlags) *cobra.Command {
	var f fsckFlags
	cmd := &cobra.Command{
		Use:   "fsck",
		Short: "Check that what the servers hold fits together, and repair it",
		Long: "Check that the names, files and bytes that the servers hold fit together, and name what does not by its path.\n" +
			"Servers that run go on working; when none runs their state directories are read. When some run and others do not, start those first.\n" + fsckLong,
		Example: "  objcache dev fsck\n  objcache dev fsck --repair",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var at dev.Disks
			err := d.with(cmd, false, func(_ context.Context, c *dev.Cluster) (err error) {
				at, err = c.Disks()
				return err
			})
			switch {
			case err != nil:
				return exitError{exitNoCheck, err}
			case len(at.Running) > 0:
				return f.online(cmd, online.Config{Servers: at.Running})
			}
			return f.offline(cmd, at.States)
		},
	}
	f.flags(cmd)
	return cmd
}
