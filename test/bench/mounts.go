package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

type mountLine struct{ device, path, kind string }

// mountTable reads the mount table, which never hangs, unlike what is mounted.
func mountTable() ([]mountLine, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var table []mountLine
	for lines := bufio.NewScanner(f); lines.Scan(); {
		before, after, ok := strings.Cut(lines.Text(), " - ")
		w, rest := strings.Fields(before), strings.Fields(after)
		if ok && len(w) > 4 && len(rest) > 0 {
			table = append(table, mountLine{w[2], w[4], rest[0]})
		}
	}
	return table, nil
}

func mountedAt(dir string) (mountLine, bool) {
	table, err := mountTable()
	if err != nil {
		return mountLine{}, false
	}
	for _, m := range table {
		if m.path == dir {
			return m, true
		}
	}
	return mountLine{}, false
}

const abortAfter = 10 * time.Second

// unmount takes a mount out of the tree. Programs in it are cut off when it stays busy or silent.
func unmount(dir string) func(context.Context) error {
	return func(ctx context.Context) error {
		m, ok := mountedAt(dir)
		if !ok {
			return nil
		}
		polite, cancel := context.WithTimeout(ctx, abortAfter)
		defer cancel()
		err := until(polite, func() bool {
			done := make(chan error, 1)
			go func() { done <- unix.Unmount(dir, unix.UMOUNT_NOFOLLOW) }()
			select {
			case <-done:
			case <-polite.Done():
			}
			_, still := mountedAt(dir)
			return !still
		})
		if err == nil {
			return nil
		}
		if strings.HasPrefix(m.kind, "fuse") {
			_, minor, _ := strings.Cut(m.device, ":")
			err = os.WriteFile(filepath.Join("/sys/fs/fuse/connections", minor, "abort"), []byte("1"), 0)
		}
		if derr := unix.Unmount(dir, unix.MNT_DETACH); derr != nil && !errors.Is(derr, unix.EINVAL) {
			return fmt.Errorf("unmount %s: %w", dir, errors.Join(err, derr))
		}
		return nil
	}
}

// until asks every 20 ms until the answer is yes or ctx ends.
func until(ctx context.Context, yes func() bool) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !yes() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}
