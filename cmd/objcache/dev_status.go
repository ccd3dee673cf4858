package main

import (
	"github.com/spf13/cobra"

	"github.com/objcache/objcache/dev"
)

func newDevStatus(d *devFlags) *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "Show servers, mounts and buckets; answers within 2 s whatever is dead",
		Long:    "Show servers, mounts and buckets. The JSON of -o json is described in docs/dev-status.md.",
		Example: "  objcache dev status\n  objcache dev status -o json | jq '.servers[].state'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			st, err := dev.ReadStatus(cmd.Context(), d.state)
			if err != nil {
				return err
			}
			return out.write(cmd.OutOrStdout(), st, st.Print)
		},
	}
	out.flag(cmd)
	return cmd
}
