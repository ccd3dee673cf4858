package main

import (
	"context"
	"maps"
	"path/filepath"
	"strings"
)

func (d *demo) readSeeded(ctx context.Context, s *step) error {
	s.ofFiles.Store(int64(len(d.seeded)))
	got, err := hashTree(ctx, filepath.Join(d.mnt(), "src"), s)
	if err != nil {
		return err
	}
	return d.seeded.same(got)
}

// readBack compares what was copied with its source, and remembers what git and sqlite have written.
func (d *demo) readBack(ctx context.Context, s *step) error {
	got, err := hashTree(ctx, filepath.Join(d.mnt(), "written"), s)
	if err != nil {
		return err
	}
	for _, name := range []string{"git", "sqlite"} {
		d.written.add("written/"+name, got.below(name))
	}
	worktree := got.below("git")
	maps.DeleteFunc(worktree, func(path string, _ sum) bool { return strings.HasPrefix(path, ".git/") })
	if err := d.seeded.below(cloned).same(worktree); err != nil {
		return err
	}
	return d.written.below("written").same(got)
}

// readAll reads everything through the second mount.
func (d *demo) readAll(ctx context.Context, s *step) error {
	want := maps.Clone(d.written)
	want.add("src", d.seeded)
	s.ofFiles.Store(int64(len(want)))
	got, err := hashTree(ctx, filepath.Join(d.second(), d.bucket.dirName), s)
	if err != nil {
		return err
	}
	return want.same(got)
}
