package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/objcache/objcache/server/external"
)

const listedObjects = 10_000

// counted are requests that passed the proxy during a listing.
type counted struct{ list, head, get int64 }

func lists(ctx context.Context, e *env, add func(row)) error {
	s3fs, err := e.mountS3fs(ctx, "s3fs-list", viaProxy, e.proxy.URL)
	if err != nil {
		return err
	}
	if err := listFlat(ctx, e, s3fs, add); err != nil {
		return err
	}
	return listTree(ctx, e, s3fs, add)
}

func listFlat(ctx context.Context, e *env, s3fs string, add func(row)) error {
	n := e.count(listedObjects)
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("flat/object-%05d", i)
	}
	c := newContent()
	if err := putMany(ctx, e.proxied, keys, func(i int) external.Body { return sectionOf(c, 100) }); err != nil {
		return err
	}
	ours, err := e.listing(ctx, e.cluster.at(viaProxy, "flat"), n)
	if err != nil {
		return err
	}
	theirs, err := e.listing(ctx, filepath.Join(s3fs, "flat"), n)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("ls -l of %d objects: ", n)
	add(row{What: what + "LIST", Unit: "requests", Objcache: numbers{float64(ours.list)}, Versus: "s3fs", Other: numbers{float64(theirs.list)}, Limit: 12,
		Note: fmt.Sprintf("objcache sent %d GET, s3fs %d", ours.get, theirs.get)})
	add(noHeads(what, ours, theirs))
	return nil
}

// noHeads is a goal of zero, which Limit cannot say otherwise than as less than one.
func noHeads(what string, ours, theirs counted) row {
	return row{What: what + "HEAD", Unit: "requests", Objcache: numbers{float64(ours.head)}, Versus: "s3fs", Other: numbers{float64(theirs.head)}, Limit: 0.5}
}

func listTree(ctx context.Context, e *env, s3fs string, add func(row)) error {
	out, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("go env GOROOT: %w", err)
	}
	src := filepath.Join(strings.TrimSpace(string(out)), "src")
	limit := 0
	if e.scale > 1 {
		limit = e.count(listedObjects)
	}
	files, dirs, err := tree(src, limit)
	if err != nil {
		return err
	}
	keys := make([]string, len(files))
	for i, f := range files {
		keys[i] = "tree/" + f
	}
	c := newContent()
	if err := putMany(ctx, e.proxied, keys, func(i int) external.Body { return sectionOf(c, 100) }); err != nil {
		return err
	}
	ours, err := e.listing(ctx, e.cluster.at(viaProxy, "tree"), len(files))
	if err != nil {
		return err
	}
	theirs, err := e.listing(ctx, filepath.Join(s3fs, "tree"), len(files))
	if err != nil {
		return err
	}
	what := fmt.Sprintf("ls -lAR of Go's source, %d files in %d directories: ", len(files), dirs)
	per := func(n int64) numbers { return numbers{float64(n) / float64(dirs)} }
	add(row{What: what + "LIST", Unit: "per dir", Objcache: per(ours.list), Versus: "s3fs", Other: per(theirs.list), Limit: 1.1,
		Note: fmt.Sprintf("objcache sent %d LIST and %d GET, s3fs %d and %d", ours.list, ours.get, theirs.list, theirs.get)})
	add(noHeads(what, ours, theirs))
	return nil
}

// listing runs ls -lAR, checks that it shows n files and returns what it cost.
func (e *env) listing(ctx context.Context, dir string, n int) (counted, error) {
	if err := appear(ctx, dir); err != nil {
		return counted{}, err
	}
	e.proxy.ResetCounters()
	cmd := exec.CommandContext(ctx, "ls", "-lAR", dir)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return counted{}, fmt.Errorf("ls -lAR %s: %w: %s", dir, err, said.Bytes()[:min(300, said.Len())])
	}
	c := e.proxy.Counters()
	if got := bytes.Count(append([]byte("\n"), out...), []byte("\n-")); got != n {
		return counted{}, fmt.Errorf("ls -lAR %s shows %d files instead of %d", dir, got, n)
	}
	return counted{c.Requests[external.OpList], c.Requests[external.OpHead], c.Requests[external.OpGet]}, nil
}
