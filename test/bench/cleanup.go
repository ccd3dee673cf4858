package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// cleanup undoes what was done, the last first, each step within a bound. Safe for concurrent use; what is added after run began is undone at once.
type cleanup struct {
	mu struct {
		sync.Mutex
		steps []step
		over  bool
	}
}

type step struct {
	what string
	undo func(ctx context.Context) error
}

const undoWithin = 30 * time.Second

func (c *cleanup) add(what string, undo func(ctx context.Context) error) {
	c.mu.Lock()
	over := c.mu.over
	if !over {
		c.mu.steps = append(c.mu.steps, step{what, undo})
	}
	c.mu.Unlock()
	if over {
		if err := (step{what, undo}).run(); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
	}
}

func (c *cleanup) run() error {
	c.mu.Lock()
	steps := c.mu.steps
	c.mu.steps, c.mu.over = nil, true
	c.mu.Unlock()
	var errs error
	for i := len(steps) - 1; i >= 0; i-- {
		errs = errors.Join(errs, steps[i].run())
	}
	return errs
}

// run gives up waiting after the bound: the next step may be what frees this one.
func (s step) run() error {
	ctx, cancel := context.WithTimeout(context.Background(), undoWithin)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.undo(ctx) }()
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("%s: %w", s.what, err)
		}
		return nil
	case <-time.After(undoWithin + 5*time.Second):
		return fmt.Errorf("%s: not done within %v", s.what, undoWithin)
	}
}

// removeAll deletes a directory of ours, unless something is still mounted in it.
func removeAll(dir string) func(context.Context) error {
	return func(context.Context) error {
		table, err := mountTable()
		if err != nil {
			return err
		}
		for _, m := range table {
			if strings.HasPrefix(m.path, filepath.Clean(dir)+"/") {
				return fmt.Errorf("%s is still mounted: %s is left behind", m.path, dir)
			}
		}
		return os.RemoveAll(dir)
	}
}
