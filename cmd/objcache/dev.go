package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/objcache/objcache/dev"
)

func newDev() *cobra.Command {
	d := &devFlags{}
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a cluster on this machine: servers, a local S3 server and mounts",
		Long: "Run a cluster of processes on this machine, below one state directory. The processes outlive the command.\n" +
			"Names of processes are server-0, server-1, ..., mount-0, ... and s3.",
		Example: "  objcache dev up\n  objcache dev status\n  objcache dev kill server-1 && objcache dev start server-1\n  objcache dev down --purge",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&d.state, "state", defaultState(), "state directory")
	must(cmd.MarkPersistentFlagDirname("state"))
	cmd.AddCommand(newDevUp(d), newDevStatus(d), newDevMount(d), newDevUmount(d), newDevKill(d), newDevStop(d), newDevStart(d), newDevFlush(d), newDevFsck(d), newDevDown(d), newDevLosses(d), newDevFailpoints())
	return cmd
}

// devFlags are those of every dev command.
type devFlags struct{ state string }

// defaultState is below the user's home; without one there is no default.
func defaultState() string {
	if d := os.Getenv("XDG_DATA_HOME"); d != "" {
		return filepath.Join(d, "objcache", "dev")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".local", "share", "objcache", "dev")
}

// with opens the cluster for one command.
func (d *devFlags) with(cmd *cobra.Command, create bool, do func(context.Context, *dev.Cluster) error) error {
	prog, err := findPrograms()
	if err != nil {
		return err
	}
	c, err := dev.Open(cmd.Context(), d.state, create, prog, buckets{}, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer c.Close()
	return do(cmd.Context(), c)
}

// findPrograms takes this program, and versitygw from beside it or from PATH.
func findPrograms() (dev.Programs, error) {
	self, err := os.Executable()
	if err != nil {
		return dev.Programs{}, err
	}
	p := dev.Programs{Objcache: self, Versitygw: filepath.Join(filepath.Dir(self), "versitygw")}
	if _, err := os.Stat(p.Versitygw); errors.Is(err, fs.ErrNotExist) {
		if p.Versitygw, err = exec.LookPath("versitygw"); err != nil {
			p.Versitygw = "" // dev says what to do, if it is needed
		}
	}
	return p, nil
}

// names completes names of processes.
func (d *devFlags) names(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return dev.Names(d.state), cobra.ShellCompDirectiveNoFileComp
}
