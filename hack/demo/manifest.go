package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
)

// sum is what a file's bytes are.
type sum struct {
	hash [sha256.Size]byte
	size int64
}

// manifest holds all regular files of a tree by their paths below it.
type manifest map[string]sum

const readers = 16 // files read at the same time

// hashTree reads a whole tree.
func hashTree(ctx context.Context, dir string, s *step) (manifest, error) {
	m, mu := manifest{}, sync.Mutex{}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(readers)
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		g.Go(func() error {
			v, err := hashFile(path)
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(dir, path)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			m[rel] = v
			s.did(1, v.size)
			return nil
		})
		return nil
	})
	if gerr := g.Wait(); gerr != nil {
		return nil, gerr
	}
	return m, err
}

func hashFile(path string) (v sum, err error) {
	f, err := os.Open(path)
	if err != nil {
		return v, err
	}
	defer f.Close()
	h := sha256.New()
	if v.size, err = io.Copy(h, f); err != nil {
		return v, fmt.Errorf("read %s: %w", path, err)
	}
	h.Sum(v.hash[:0])
	return v, nil
}

// same reports the first files that are missing, too many or different.
func (m manifest) same(got manifest) error {
	var bad []string
	for _, path := range slices.Sorted(maps.Keys(m)) {
		v, ok := got[path]
		switch {
		case !ok:
			bad = append(bad, path+" is missing")
		case v.size != m[path].size:
			bad = append(bad, fmt.Sprintf("%s has %d bytes instead of %d", path, v.size, m[path].size))
		case v != m[path]:
			bad = append(bad, path+" has other bytes")
		}
	}
	for _, path := range slices.Sorted(maps.Keys(got)) {
		if _, ok := m[path]; !ok {
			bad = append(bad, path+" should not be there")
		}
	}
	if len(bad) == 0 {
		return nil
	}
	return fmt.Errorf("%d files differ: %s", len(bad), strings.Join(bad[:min(5, len(bad))], ", "))
}

// below is the part of the manifest under a directory, with paths below it.
func (m manifest) below(dir string) manifest {
	out := manifest{}
	for path, v := range m {
		if rel, ok := strings.CutPrefix(path, dir+"/"); ok {
			out[rel] = v
		}
	}
	return out
}

// add puts a tree into the manifest, at a directory.
func (m manifest) add(dir string, tree manifest) {
	for path, v := range tree {
		m[filepath.Join(dir, path)] = v
	}
}
