package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/fsck"
	"github.com/objcache/objcache/server/fsck/offline"
	"github.com/objcache/objcache/server/fsck/online"
)

// exitError ends the program with a code of its own. Without an error the output has said everything.
type exitError struct {
	code int
	err  error
}

func (e exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e exitError) Unwrap() error { return e.err }

// Exit codes of fsck.
const (
	exitFindings = 1
	exitNoCheck  = 2
)

// fsckFlags are those of fsck and of dev fsck.
type fsckFlags struct {
	verify, repair, dryRun, revertLost bool
	out                                output
}

func (f *fsckFlags) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.verify, "verify", false, "read all bytes that the buckets do not have, and compare their checksums")
	cmd.Flags().BoolVar(&f.repair, "repair", false, "repair what is safe; needs running servers")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "say what --repair would do, and do nothing")
	cmd.Flags().BoolVar(&f.revertLost, "revert-lost", false,
		"with --repair: files whose only copy is damaged or gone fall back to their last persisted version, or go if there is none")
	f.out.flag(cmd)
}

const fsckLong = "Exits with 0 when nothing is wrong (or everything was repaired), 1 when something is, 2 when it could not be checked.\n" +
	"What the codes mean and what --repair does about each: docs/operations/fsck.md."

func newFsck() *cobra.Command {
	var f fsckFlags
	var servers, states []string
	var files tlsFiles
	cmd := &cobra.Command{
		Use:   "fsck --servers ADDR[,ADDR...] | --state DIR...",
		Short: "Check that what servers hold fits together, and repair it",
		Long: "Check that the names, files and bytes that servers hold fit together, and name what does not by its path.\n" +
			"With --servers the servers run and go on working. With --state they do not run: their state directories are read, and not changed.\n" + fsckLong,
		Example: "  objcache fsck --servers 10.0.0.1:7070\n" +
			"  objcache fsck --servers 10.0.0.1:7070 --repair\n" +
			"  objcache fsck --state /var/lib/objcache/server-0 --state /var/lib/objcache/server-1 --verify",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case (len(servers) == 0) == (len(states) == 0):
				return exitError{exitNoCheck, objcache.Errorf(objcache.Invalid, "give the addresses of running servers (--servers) or state directories (--state)")}
			case len(states) > 0:
				return f.offline(cmd, states)
			}
			conf, err := files.config()
			if err != nil {
				return exitError{exitNoCheck, err}
			}
			return f.online(cmd, online.Config{Servers: servers, TLS: conf})
		},
	}
	cmd.Flags().StringSliceVar(&servers, "servers", nil, "addresses of running servers; they name the others")
	cmd.Flags().StringArrayVar(&states, "state", nil, "state directory of a server that does not run; once for each server of the cluster")
	must(cmd.MarkFlagDirname("state"))
	files.flags(cmd.Flags())
	f.flags(cmd)
	return cmd
}

func (f *fsckFlags) options() (fsck.Options, error) {
	if f.out.format != "table" && f.out.format != "json" {
		return fsck.Options{}, objcache.Errorf(objcache.Invalid, "-o %q: want table or json", f.out.format)
	}
	if f.revertLost && !f.repair && !f.dryRun {
		return fsck.Options{}, objcache.Errorf(objcache.Invalid, "--revert-lost goes with --repair or --dry-run")
	}
	return fsck.Options{RevertLost: f.revertLost}, nil
}

func (f *fsckFlags) online(cmd *cobra.Command, cfg online.Config) (err error) {
	o, err := f.options()
	if err != nil {
		return exitError{exitNoCheck, err}
	}
	cfg.Verify = f.verify
	c, err := online.Open(cmd.Context(), cfg)
	if err != nil {
		return exitError{exitNoCheck, err}
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	var carry func(context.Context, fsck.Repair) error
	if f.repair && !f.dryRun {
		carry = c.Carry
	}
	out, err := fsck.Mend(cmd.Context(), c.Check, carry, o)
	if err != nil {
		return exitError{exitNoCheck, err}
	}
	return f.report(cmd, out)
}

func (f *fsckFlags) offline(cmd *cobra.Command, dirs []string) error {
	if _, err := f.options(); err != nil {
		return exitError{exitNoCheck, err}
	}
	if f.repair && !f.dryRun {
		return exitError{exitNoCheck, objcache.Errorf(objcache.Invalid,
			"state directories are only checked: start the servers and repair online (objcache fsck --servers ADDR --repair)")}
	}
	found, err := offline.Check(cmd.Context(), dirs, offline.Options{Verify: f.verify})
	if err != nil {
		return exitError{exitNoCheck, err}
	}
	return f.report(cmd, fsck.Outcome{Found: found, Left: found})
}

// fsckReport is what -o json prints.
type fsckReport struct {
	Findings []fsck.Finding `json:"findings"` // of the first look
	Repairs  []fsck.Repair  `json:"repairs"`  // carried out; with --dry-run, or without --repair: planned
	Repaired bool           `json:"repaired"` // whether repairs were carried out
	Left     []fsck.Finding `json:"left"`     // of the last look
	Unsure   int            `json:"unsure"`   // suspicions that kept changing
	Clean    bool           `json:"clean"`
}

func (f *fsckFlags) report(cmd *cobra.Command, out fsck.Outcome) error {
	r := fsckReport{
		Findings: append([]fsck.Finding{}, out.Found...), Repairs: append([]fsck.Repair{}, out.Repairs...), Repaired: f.repair && !f.dryRun,
		Left: append([]fsck.Finding{}, out.Left...), Unsure: out.Unsure, Clean: out.Clean(),
	}
	if err := f.out.write(cmd.OutOrStdout(), r, func(w io.Writer) error { return f.table(w, r) }); err != nil {
		return exitError{exitNoCheck, err}
	}
	if !r.Clean {
		return exitError{code: exitFindings}
	}
	return nil
}

func (f *fsckFlags) table(w io.Writer, r fsckReport) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(r.Findings) > 0 {
		fmt.Fprintln(t, "CODE\tWHERE\tWHAT\tREPAIR")
	}
	for _, x := range r.Findings {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", x.Code, x.Where(), x.Text, x.Repair)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if f.repair || f.dryRun {
		verb := "repaired"
		if !r.Repaired {
			verb = "would repair"
		}
		for _, x := range r.Repairs {
			fmt.Fprintf(w, "%s %s: %s (%s)\n", verb, x.Where(), x.Text, x.Code)
		}
	}
	if r.Repaired {
		for _, x := range r.Left {
			fmt.Fprintf(w, "left %s: %s (%s)\n", x.Where(), x.Text, x.Code)
		}
	}
	if r.Unsure > 0 {
		fmt.Fprintf(w, "%d suspicions kept changing while they were looked at: check again when there is less going on\n", r.Unsure)
	}
	if r.Clean {
		_, err := fmt.Fprintln(w, "clean")
		return err
	}
	return nil
}
