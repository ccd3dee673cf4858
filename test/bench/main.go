// Command bench measures objcache beside s3fs, ext4 and a plain S3 client on this machine and says which goals are met. It promises
// that whatever it starts is unmounted, stopped and deleted at its end, also after a failure or SIGINT. It does not know what a good
// number on another machine is: only ratios within one run count.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"
)

// options are the flags.
type options struct {
	only            *regexp.Regexp
	runs            int
	scale           int64
	passthrough     string
	dir, out        string
	objcache, minio string
	flushInterval   time.Duration
	pprof           bool
}

func main() {
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
		err = run(ctx, o)
		stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	var o options
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	only := fs.String("only", "", "regular expression: only these benchmarks ("+names()+")")
	fs.IntVar(&o.runs, "runs", 5, "measurements of each number; the table has their median, minimum and maximum")
	fs.Int64Var(&o.scale, "scale", 1, "divide sizes and numbers of files by this")
	fs.StringVar(&o.passthrough, "passthrough", "auto", "of the mounts: auto or off")
	fs.StringVar(&o.dir, "dir", os.TempDir(), "where state, caches and files of the comparison go; on a real disk")
	fs.StringVar(&o.out, "out", "bin/bench", "where bench.json and bench.md go")
	fs.StringVar(&o.objcache, "objcache", "bin/objcache", "program to measure")
	fs.StringVar(&o.minio, "minio", "bin/minio", "S3 server")
	fs.DurationVar(&o.flushInterval, "flush-interval", 10*time.Minute, "of the servers; short enough and uploads compete with what is measured")
	fs.BoolVar(&o.pprof, "pprof", false, "let servers and mounts serve profiles")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	var err error
	o.only, err = regexp.Compile(*only)
	switch {
	case err != nil:
		return o, fmt.Errorf("-only: %w", err)
	case o.runs < 1 || o.scale < 1:
		return o, errors.New("-runs and -scale are at least 1")
	case o.passthrough != "auto" && o.passthrough != "off":
		return o, fmt.Errorf("-passthrough %q: want auto or off", o.passthrough)
	}
	return o, nil
}

// run measures in a goroutine of its own: a read that hangs in a dead mount cannot be interrupted, only its mount can be cut off.
func run(ctx context.Context, o options) error {
	down := &cleanup{}
	table := &report{Options: describe(o), Started: time.Now()}
	done := make(chan error, 1)
	go func() { done <- measure(ctx, o, down, table) }()
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		fmt.Fprintln(os.Stderr, "bench: interrupted; cleaning up")
		err = ctx.Err()
	}
	err = errors.Join(err, down.run())
	table.Took = time.Since(table.Started).Round(time.Second).String()
	if rows := table.rows(); len(rows) > 0 {
		err = errors.Join(err, table.write(o.out))
	}
	return err
}

func measure(ctx context.Context, o options, down *cleanup, table *report) error {
	e, err := prepare(ctx, o, down)
	if err != nil {
		return err
	}
	table.header(os.Stdout)
	add := func(r row) { table.add(os.Stdout, r) }
	for _, b := range benchmarks {
		if !o.only.MatchString(b.name) {
			continue
		}
		say("%s: %s", b.name, b.what)
		if err := b.run(ctx, e, add); err != nil {
			return fmt.Errorf("%s: %w", b.name, err)
		}
	}
	memory(e, add)
	return nil
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...) }
