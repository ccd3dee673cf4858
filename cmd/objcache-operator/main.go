// Command objcache-operator is the Kubernetes operator of objcache. So far it reports its version and nothing else:
// the controllers are not in this build, and it says so and fails when asked to run.
package main

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the linker when the Makefile builds a release.
var version string

var errEmpty = errors.New("this build holds no controllers: it reports its version and nothing else")

func main() {
	if err := newRoot().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "objcache-operator:", err)
		os.Exit(1)
	}
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "objcache-operator",
		Short:         "Kubernetes operator of objcache (this build reports its version only)",
		Version:       buildVersion(),
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          func(*cobra.Command, []string) error { return errEmpty },
	}
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	return root
}

// buildVersion is what this program was built from: the linker's word, else what the go command recorded.
func buildVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}
