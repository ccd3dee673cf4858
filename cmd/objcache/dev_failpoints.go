package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/objcache/objcache/failpoint"
)

func newDevFailpoints() *cobra.Command {
	return &cobra.Command{
		Use:   "failpoints",
		Short: "List the steps at which a test can kill, stop or delay a process",
		Long: "List the steps at which a test can kill, stop or delay a process, and which process passes each.\n" +
			"They exist only in a program built with `go build -tags failpoints`; see docs/operations/failpoints.md.",
		Example: "  objcache dev failpoints",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return printFailpoints(cmd.OutOrStdout()) },
	}
}

func printFailpoints(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, i := range failpoint.All() {
		fmt.Fprintf(t, "%s\t%s\t%s\n", i.Name, i.In, i.Text)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	what := "This program was built without them (-tags failpoints)."
	if failpoint.Enabled {
		what = "This program was built with them."
	}
	_, err := fmt.Fprintf(w, "\n%d failpoints. %s\n", len(failpoint.All()), what)
	return err
}
