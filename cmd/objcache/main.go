// Command objcache is the user's program: it runs servers and mounts and talks to them. Each command has a file of
// its own that only wires packages together. It does not know how any of them works.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newRoot().ExecuteContext(ctx)
	stop()
	os.Exit(exitCode(err))
}

// exitCode says what is wrong, if anything is, and is 1 then unless the command has a code of its own.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if text := oneLine(err); text != "" {
		fmt.Fprintln(os.Stderr, "objcache:", text)
	}
	var e exitError
	if errors.As(err, &e) {
		return e.code
	}
	return 1
}

// newRoot returns the program's command tree. Errors are printed by main, once, without the usage text.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "objcache",
		Short:         "An elastic POSIX filesystem over S3 buckets",
		Version:       buildVersion(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.AddCommand(newServer(), newMount(), newStatus(), newLosses(), newFlush(), newRefresh(), newWarm(), newFsck(), newDev(), newVersion())
	return root
}

// oneLine joins what several causes say.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
