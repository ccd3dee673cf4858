package client

import (
	"context"
	"errors"
	"io"
	"path"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/ring"
)

const filesAtOnce = 16

// Work persists or warms a file, or a directory with all below it, and reports how far it is. What could not be done is in the last report.
func (c *Client) Work(ctx context.Context, verb rpc.WorkRequest_Verb, ino objcache.Ino, progress func(*rpc.Progress)) error {
	if verb == rpc.WorkRequest_FLUSH && (ino == 0 || ino == objcache.RootIno) {
		return c.flushAll(ctx, progress)
	}
	w := &walk{c: c, verb: verb, report: progress}
	a, err := c.Getattr(ctx, ino)
	if err != nil {
		return err
	}
	parent := ctx
	w.group, ctx = errgroup.WithContext(ctx)
	w.group.SetLimit(filesAtOnce)
	err = w.visit(ctx, a, "")
	if gerr := w.group.Wait(); err == nil {
		err = gerr
	}
	// Directories behind what is in them: their tables tell of the objects just written.
	for i := len(w.dirs) - 1; i >= 0 && err == nil; i-- {
		w.done(w.dirs[i].name, objcache.Attr{}, w.one(parent, w.dirs[i].attr))
		err = parent.Err()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.p.End = true
	progress(&w.mu.p)
	return err
}

// walk visits a tree, children before their directory.
type walk struct {
	c      *Client
	verb   rpc.WorkRequest_Verb
	report func(*rpc.Progress)
	group  *errgroup.Group
	dirs   []visited // parents before children
	mu     struct {
		sync.Mutex
		p rpc.Progress
	}
}

type visited struct {
	name string
	attr objcache.Attr
}

func (w *walk) visit(ctx context.Context, a objcache.Attr, name string) error {
	w.mu.Lock()
	w.mu.p.FilesTotal++
	w.mu.p.BytesTotal += uint64(a.Size)
	w.mu.Unlock()
	if !a.IsDir() {
		w.group.Go(func() error { w.done(name, a, w.one(ctx, a)); return ctx.Err() })
		return nil
	}
	w.dirs = append(w.dirs, visited{name, a})
	for cookie, eof := uint64(0), false; !eof; {
		var es []objcache.DirEntry
		var err error
		if es, eof, err = w.c.Readdir(ctx, a.Ino, cookie, 1000); err != nil {
			return err
		}
		for _, e := range es {
			cookie = e.Cookie
			if err := w.visit(ctx, e.Attr, path.Join(name, e.Name)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *walk) one(ctx context.Context, a objcache.Attr) error {
	if w.verb == rpc.WorkRequest_FLUSH {
		return w.c.Persist(ctx, a.Ino)
	}
	if !a.IsRegular() {
		return nil
	}
	for off := int64(0); off < a.Size; off += objcache.ChunkSize {
		k := objcache.ChunkKey{Ino: a.Ino, Index: objcache.ChunkOf(off)}
		_, err := w.c.read(ctx, ring.HashChunk(k), &rpc.Request{Op: &rpc.Request_Warm{Warm: &rpc.WarmRequest{
			Ino: uint64(a.Ino), Chunk: k.Index, Version: a.Version, Len: a.Size,
		}}})
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) done(name string, a objcache.Attr, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.p.FilesDone++
	w.mu.p.BytesDone += uint64(a.Size)
	if err != nil && !errors.Is(err, objcache.Stale) && !errors.Is(err, objcache.NotExist) {
		w.mu.p.Problems = append(w.mu.p.Problems, &rpc.Problem{Path: name, Error: err.Error()})
	}
	w.report(&w.mu.p)
}

// flushAll has every server persist its share, again until no server is left with anything but problems: a rename may hand work to another.
func (c *Client) flushAll(ctx context.Context, progress func(*rpc.Progress)) error {
	var total rpc.Progress
	for round, quiet := 0, 0; ; round++ {
		var mu sync.Mutex
		left := map[string]*rpc.Progress{}
		g, ctx := errgroup.WithContext(ctx)
		for _, m := range c.View().Members {
			g.Go(func() error {
				return c.flushShare(ctx, m.Address, func(p *rpc.Progress) {
					mu.Lock()
					defer mu.Unlock()
					left[m.Name] = p
					progress(sum(left))
				})
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
		now := sum(left)
		if round == 0 {
			total.FilesTotal = now.GetFilesTotal()
		}
		quiet++
		if now.GetFilesTotal() > 0 {
			quiet = 0
		}
		// One server may have handed work to another that had just said it owes nothing.
		if quiet == 2 || len(now.GetProblems()) > 0 {
			total.FilesDone, total.Problems, total.End = total.GetFilesTotal(), now.GetProblems(), true
			progress(&total)
			return nil
		}
	}
}

func sum(ps map[string]*rpc.Progress) *rpc.Progress {
	out := &rpc.Progress{}
	for _, p := range ps {
		out.FilesDone += p.GetFilesDone()
		out.FilesTotal += p.GetFilesTotal()
		out.Problems = append(out.Problems, p.GetProblems()...)
	}
	return out
}

func (c *Client) flushShare(ctx context.Context, address string, report func(*rpc.Progress)) error {
	conn, err := c.router.Conn(address)
	if err != nil {
		return err
	}
	s, err := rpc.NewFilesClient(conn).Work(ctx, &rpc.WorkRequest{Verb: rpc.WorkRequest_FLUSH})
	if err != nil {
		return rpc.FromStatus(err)
	}
	for {
		p, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return rpc.FromStatus(err)
		}
		report(p)
	}
}
