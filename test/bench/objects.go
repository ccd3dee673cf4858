package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/objcache/objcache/server/external"
	"github.com/objcache/objcache/server/external/s3"
)

const (
	partBytes   = 16 << 20
	plainRanges = 8
)

// put makes an object of content's bytes.
func put(ctx context.Context, st *s3.Store, key string, size int64, c content) error {
	if size <= partBytes {
		_, err := st.Put(ctx, key, io.NewSectionReader(c, 0, size), nil, external.Condition{})
		return err
	}
	id, err := st.CreateUpload(ctx, key, nil)
	if err != nil {
		return err
	}
	parts := make([]external.Part, (size+partBytes-1)/partBytes)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(4)
	for i := range parts {
		g.Go(func() error {
			off := int64(i) * partBytes
			etag, err := st.UploadPart(gctx, key, id, int32(i+1), io.NewSectionReader(c, off, min(partBytes, size-off)))
			parts[i] = external.Part{Number: int32(i + 1), ETag: etag}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	_, err = st.CompleteUpload(ctx, key, id, parts, external.Condition{})
	return err
}

// plainRead reads an object with eight ranged GETs at a time and nothing else: what a client can get from this S3.
func plainRead(ctx context.Context, st *s3.Store, key string, size int64) (time.Duration, error) {
	begin := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(plainRanges)
	for off := int64(0); off < size; off += partBytes {
		g.Go(func() error {
			n := min(partBytes, size-off)
			body, _, err := st.Get(ctx, key, off, n, "")
			if err != nil {
				return err
			}
			defer body.Close()
			m, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, body, make([]byte, 256<<10))
			if err == nil && m != n {
				err = fmt.Errorf("%s: %d bytes instead of %d", key, m, n)
			}
			return err
		})
	}
	err := g.Wait()
	return time.Since(begin), err
}

// putMany makes small objects, 16 at a time.
func putMany(ctx context.Context, st *s3.Store, keys []string, body func(i int) external.Body) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(16)
	for i, k := range keys {
		g.Go(func() error {
			_, err := st.Put(ctx, k, body(i), nil, external.Condition{})
			return err
		})
	}
	return g.Wait()
}

// tree lists the regular files below a directory, at most limit of them (0: all), and counts the directories they are in.
func tree(root string, limit int) (files []string, dirs int, err error) {
	in := map[string]bool{}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		if limit > 0 && len(files) >= limit {
			return fs.SkipAll
		}
		rel, err := filepath.Rel(root, path)
		files = append(files, rel)
		for p := filepath.Dir(rel); !in[p]; p = filepath.Dir(p) {
			in[p] = true
		}
		return err
	})
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s: %w", root, os.ErrNotExist)
	}
	return files, len(in), err
}

// sectionOf is the first n bytes of content.
func sectionOf(c content, n int64) external.Body { return io.NewSectionReader(c, 0, n) }
