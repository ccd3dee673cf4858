package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"
)

// row is one line of the table: objcache's numbers, those of what it is compared with, and the goal.
type row struct {
	What     string  `json:"what"`
	Unit     string  `json:"unit"`
	Objcache numbers `json:"objcache"`
	Versus   string  `json:"versus,omitempty"`
	Other    numbers `json:"other,omitempty"`
	// Goal is how many times Other the median of Objcache must be (Ratio), or a bound on it (Limit).
	Ratio float64 `json:"ratio,omitempty"`
	Limit float64 `json:"limit,omitempty"`
	Note  string  `json:"note,omitempty"`

	Median   float64 `json:"median"`
	Measured float64 `json:"measuredRatio,omitempty"`
	Met      *bool   `json:"met,omitempty"` // nil: no goal
}

// judge fills in what follows from the numbers.
func (r row) judge() row {
	r.Median = r.Objcache.median()
	if o := r.Other.median(); o > 0 {
		r.Measured = r.Median / o
	}
	met := false
	switch {
	case r.Ratio > 0:
		met = r.Measured >= r.Ratio
	case r.Limit > 0:
		met = r.Median <= r.Limit
	default:
		return r
	}
	r.Met = &met
	return r
}

func (r row) goal() string {
	switch {
	case r.Ratio > 0:
		return fmt.Sprintf(">= %s x %s", short(r.Ratio), r.Versus)
	case r.Limit > 0:
		return "<= " + short(r.Limit)
	}
	return ""
}

func (r row) ratio() string {
	if r.Measured == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f", r.Measured)
}

func (r row) verdict() string {
	switch {
	case r.Met == nil:
		return ""
	case *r.Met:
		return "met"
	}
	return "NOT"
}

func (r row) other() string {
	if len(r.Other) == 0 {
		return ""
	}
	return r.Versus + " " + r.Other.String()
}

// report is the whole table. Rows may still arrive while it is written.
type report struct {
	Options string    `json:"options"`
	Machine string    `json:"machine"`
	Started time.Time `json:"started"`
	Took    string    `json:"took"`
	mu      struct {
		sync.Mutex
		rows []row
	}
}

func describe(o options) string {
	return fmt.Sprintf("-runs %d -scale %d -passthrough %s -flush-interval %v; MinIO on tmpfs, %d servers; s3fs with %s",
		o.runs, o.scale, o.passthrough, o.flushInterval, servers, strings.Join(s3fsOptions, ","))
}

const columns = "%-62s %-8s %-22s %-34s %-20s %6s  %s\n"

func (t *report) header(w io.Writer) {
	t.Machine = fmt.Sprintf("%d CPUs, %s/%s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
	fmt.Fprintf(w, columns, "WHAT", "UNIT", "OBJCACHE", "BESIDE", "GOAL", "RATIO", "")
}

func (t *report) add(w io.Writer, r row) {
	r = r.judge()
	t.mu.Lock()
	t.mu.rows = append(t.mu.rows, r)
	t.mu.Unlock()
	fmt.Fprintf(w, columns, r.What, r.Unit, r.Objcache.String(), r.other(), r.goal(), r.ratio(), r.verdict())
	if r.Note != "" {
		fmt.Fprintf(w, "    %s\n", r.Note)
	}
}

func (t *report) rows() []row {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]row(nil), t.mu.rows...)
}

// write puts bench.json and bench.md into dir.
func (t *report) write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	b, err := json.MarshalIndent(struct {
		*report
		Rows []row `json:"rows"`
	}{t, t.rows()}, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "bench.json"), append(b, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "bench.md"), []byte(t.markdown()), 0o644)
}

func (t *report) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Medians (minimum..maximum) on %s, %s, took %s. %s\n\n", t.Machine, t.Started.Format(time.DateOnly), t.Took, t.Options)
	b.WriteString("| what | unit | objcache | beside | goal | ratio | |\n|---|---|---|---|---|---|---|\n")
	for _, r := range t.rows() {
		what := r.What
		if r.Note != "" {
			what += "<br>" + r.Note
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", what, r.Unit, r.Objcache, r.other(), r.goal(), r.ratio(), r.verdict())
	}
	return b.String()
}
