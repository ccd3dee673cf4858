package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"golang.org/x/term"
)

const (
	barAfter  = 2 * time.Second
	barEvery  = 200 * time.Millisecond
	lineEvery = 5 * time.Second // off a terminal
	barWidth  = 30
)

// report prints the steps as they end, and all of them at the end.
type report struct {
	out      *os.File
	terminal bool
	rows     []row
	began    time.Time
}

type row struct {
	name         string
	took         time.Duration
	files, bytes int64
	err          error
}

// step counts what a step has done; its functions may be called at the same time.
type step struct{ files, bytes, ofFiles atomic.Int64 }

func (s *step) did(files, bytes int64) { s.files.Add(files); s.bytes.Add(bytes) }

func newReport(out *os.File) *report {
	return &report{out: out, terminal: term.IsTerminal(int(out.Fd())), began: time.Now()}
}

func (r *report) step(ctx context.Context, name string, do func(context.Context, *step) error) error {
	s, began := &step{}, time.Now()
	done := make(chan error, 1)
	go func() { done <- do(ctx, s) }()
	err := r.watch(s, name, began, done)
	v := row{name, time.Since(began), s.files.Load(), s.bytes.Load(), err}
	r.rows = append(r.rows, v)
	verdict := ""
	if err != nil {
		verdict = "  FAILED"
	}
	fmt.Fprintf(r.out, "%-38s %7.1f s  %s%s\n", name, v.took.Seconds(), v.rate(), verdict)
	return err
}

func (r *report) watch(s *step, name string, began time.Time, done <-chan error) error {
	every := lineEvery
	if r.terminal {
		every = barEvery
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			if r.terminal {
				fmt.Fprint(r.out, "\r\x1b[K")
			}
			return err
		case <-tick.C:
			if took := time.Since(began); took > barAfter {
				r.bar(s, name, took)
			}
		}
	}
}

func (r *report) bar(s *step, name string, took time.Duration) {
	text := fmt.Sprintf("%-38s %7.1f s  ", name, took.Seconds())
	files, of := s.files.Load(), s.ofFiles.Load()
	switch {
	case of > 0:
		n := int(min(files, of) * barWidth / of)
		text += fmt.Sprintf("[%s%s] %d of %d files", strings.Repeat("=", n), strings.Repeat(" ", barWidth-n), files, of)
	case files > 0:
		text += fmt.Sprintf("%d files", files)
	}
	if r.terminal {
		fmt.Fprintf(r.out, "\r%s\x1b[K", text)
	} else {
		fmt.Fprintln(r.out, text)
	}
}

// rate is what the step moved, and how fast.
func (v row) rate() string {
	var parts []string
	if v.files > 0 {
		parts = append(parts, fmt.Sprintf("%6d files %7.0f/s", v.files, float64(v.files)/v.took.Seconds()))
	}
	if v.bytes > 0 {
		parts = append(parts, fmt.Sprintf("%7.1f MiB %6.1f MiB/s", float64(v.bytes)/(1<<20), float64(v.bytes)/(1<<20)/v.took.Seconds()))
	}
	return strings.Join(parts, "  ")
}

func (r *report) table() {
	t := tabwriter.NewWriter(r.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\nSTEP\tRESULT\tSECONDS\tFILES, BYTES AND THROUGHPUT")
	for _, v := range r.rows {
		result := "ok"
		if v.err != nil {
			result = "FAILED"
		}
		fmt.Fprintf(t, "%s\t%s\t%.1f\t%s\n", v.name, result, v.took.Seconds(), v.rate())
	}
	fmt.Fprintf(t, "total\t\t%.1f\t\n", time.Since(r.began).Seconds())
	_ = t.Flush() // a closed terminal is no failure of the demo
}

var _ io.Writer = (*lineCounter)(nil)

// lineCounter counts the lines that a verbose tool prints, one for each file.
type lineCounter struct{ s *step }

func (l *lineCounter) Write(p []byte) (int, error) {
	l.s.did(int64(strings.Count(string(p), "\n")), 0)
	return len(p), nil
}
