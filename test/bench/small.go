package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	smallFiles = 2000
	smallSize  = 16 << 10
)

func small(ctx context.Context, e *env, add func(row)) error {
	s3fs, err := e.mountS3fs(ctx, "s3fs-small", direct, e.s3.S3.Endpoint)
	if err != nil {
		return err
	}
	n := e.count(smallFiles)
	for _, writers := range []int{1, 16} {
		var ours, theirs, ext4 numbers
		for i := range e.runs {
			for _, at := range []struct {
				root string
				into *numbers
				n    int
			}{{e.dir, &ext4, n}, {filepath.Join(e.cluster.mnt, direct), &ours, n}, {s3fs, &theirs, max(1, n/4)}} {
				dir := filepath.Join(at.root, fmt.Sprintf("small-%d-%d-%s", writers, i, filepath.Base(at.root)))
				took, err := createMany(ctx, dir, at.n, writers)
				if err != nil {
					return err
				}
				*at.into = append(*at.into, float64(at.n)/took.Seconds())
				if err := os.RemoveAll(dir); err != nil {
					return err
				}
			}
		}
		what := fmt.Sprintf("create + write 16 KiB + close, %d files, %d writers", n, writers)
		add(row{What: what, Unit: "files/s", Objcache: ours, Versus: "s3fs", Other: theirs, Ratio: 5,
			Note: fmt.Sprintf("ext4 without fsync: %s; s3fs with a quarter of the files", ext4)})
	}
	return nil
}

// createMany makes files in a fresh directory and returns the time of the files only.
func createMany(ctx context.Context, dir string, n, writers int) (time.Duration, error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return 0, err
	}
	c := newContent()
	begin := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	for w := range writers {
		g.Go(func() error {
			for i := w; i < n && ctx.Err() == nil; i += writers {
				if _, err := writeFile(filepath.Join(dir, fmt.Sprintf("file-%05d", i)), smallSize, c, false); err != nil {
					return err
				}
			}
			return ctx.Err()
		})
	}
	err := g.Wait()
	return time.Since(begin), err
}
