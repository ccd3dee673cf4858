package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

const (
	barWidth  = 30
	barEvery  = 100 * time.Millisecond
	lineEvery = 5 * time.Second
)

// progress shows how far a long operation is: a bar on a terminal, else a line now and then and one at the end. Safe for concurrent use.
type progress struct {
	w     io.Writer
	verb  string // past participle: "persisted"
	bar   bool
	every time.Duration
	mu    struct {
		sync.Mutex
		text  string // what is to be said
		said  string
		shown time.Time
	}
}

func newProgress(w io.Writer, verb string) *progress {
	p := &progress{w: w, verb: verb, every: lineEvery}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.bar, p.every = true, barEvery
	}
	p.mu.shown = time.Now()
	return p
}

func (p *progress) show(files, ofFiles, bytes, ofBytes uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.text = fmt.Sprintf("%s %d of %d files", p.verb, files, ofFiles)
	if ofBytes > 0 {
		p.mu.text += fmt.Sprintf(", %.1f of %.1f MiB", float64(bytes)/(1<<20), float64(ofBytes)/(1<<20))
	}
	if p.bar && ofFiles > 0 {
		n := int(min(files, ofFiles) * barWidth / ofFiles)
		p.mu.text = "[" + strings.Repeat("=", n) + strings.Repeat(" ", barWidth-n) + "] " + p.mu.text
	}
	if time.Since(p.mu.shown) >= p.every {
		p.sayLocked()
	}
}

func (p *progress) sayLocked() {
	if p.mu.text == "" || p.mu.text == p.mu.said {
		return
	}
	if p.bar {
		fmt.Fprintf(p.w, "\r%s\x1b[K", p.mu.text)
	} else {
		fmt.Fprintln(p.w, p.mu.text)
	}
	p.mu.said, p.mu.shown = p.mu.text, time.Now()
}

// end says the last word.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sayLocked()
	if p.bar && p.mu.said != "" {
		fmt.Fprintln(p.w)
	}
}
