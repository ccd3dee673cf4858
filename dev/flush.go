package dev

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
)

// Flushed is the progress, and at the end the outcome, of persisting: the sum over all servers.
type Flushed struct {
	FilesDone, FilesTotal uint64
	BytesDone, BytesTotal uint64
	Problems              []Problem
}

// Problem is a file that could not be persisted, and why.
type Problem struct{ Path, Error string }

// Flush persists everything that is dirty at the servers that run, all at the same time, and again until nothing is left but problems: one server's
// work may make work for another. progress is called with the sum so far, never twice at once; it may be nil.
// The problems are files that could not be persisted; a server that could not be asked is an error that names it, and the others are still asked.
func (c *Cluster) Flush(ctx context.Context, progress func(Flushed)) (Flushed, error) {
	if c.isNew() {
		return Flushed{}, errNotUp(c.dir)
	}
	var all Flushed
	for quiet := 0; ; {
		before := all
		round, err := c.flushRound(ctx, func(f Flushed) {
			if progress != nil {
				progress(before.plus(f))
			}
		})
		all = before.plus(round)
		quiet++
		if round.FilesTotal > 0 {
			quiet = 0
		}
		// One server may have handed work to another that had just said it owes nothing.
		if err != nil || quiet == 2 || len(round.Problems) > 0 {
			return all, err
		}
	}
}

func (f Flushed) plus(o Flushed) Flushed {
	return Flushed{
		FilesDone: f.FilesDone + o.FilesDone, FilesTotal: f.FilesTotal + o.FilesTotal,
		BytesDone: f.BytesDone + o.BytesDone, BytesTotal: f.BytesTotal + o.BytesTotal, Problems: o.Problems,
	}
}

func (c *Cluster) flushRound(ctx context.Context, progress func(Flushed)) (Flushed, error) {
	sum := newSum(progress)
	var wg sync.WaitGroup
	errs := make([]error, len(c.spec.Servers))
	for i, s := range c.spec.Servers {
		wg.Go(func() { errs[i] = c.flushServer(ctx, s, func(p *rpc.Progress) { sum.set(i, p) }) })
	}
	wg.Wait()
	return sum.total(len(errs)), errors.Join(errs...)
}

func (c *Cluster) flushServer(ctx context.Context, s serverSpec, progress func(*rpc.Progress)) error {
	if !read(serverMember{c, s}.dir()).running() {
		return objcache.Errorf(objcache.Unavailable, "%s does not run: what it has not persisted stays in its state directory", s.Name)
	}
	conn, err := dial(s.Address)
	if err != nil {
		return err
	}
	defer conn.Close()
	stream, err := rpc.NewFilesClient(conn).Work(ctx, &rpc.WorkRequest{Verb: rpc.WorkRequest_FLUSH})
	if err != nil {
		return objcache.Errorf(objcache.Unavailable, "flush %s: %w", s.Name, rpc.FromStatus(err))
	}
	for {
		p, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return objcache.Errorf(objcache.Unavailable, "flush %s: %w", s.Name, rpc.FromStatus(err))
		}
		progress(p)
	}
}

// sum adds up what several servers say.
type sum struct {
	mu struct {
		sync.Mutex
		last     map[int]*rpc.Progress
		problems map[int][]Problem
	}
	tell func(Flushed) // called under mu: one call at a time
}

func newSum(tell func(Flushed)) *sum {
	s := &sum{tell: tell}
	s.mu.last, s.mu.problems = map[int]*rpc.Progress{}, map[int][]Problem{}
	return s
}

func (s *sum) set(server int, p *rpc.Progress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.last[server] = p
	for _, pr := range p.GetProblems() {
		if v := (Problem{pr.GetPath(), pr.GetError()}); !slices.Contains(s.mu.problems[server], v) {
			s.mu.problems[server] = append(s.mu.problems[server], v)
		}
	}
	s.tell(s.numbersLocked())
}

func (s *sum) numbersLocked() Flushed {
	var f Flushed
	for _, p := range s.mu.last {
		f.FilesDone += p.GetFilesDone()
		f.FilesTotal += p.GetFilesTotal()
		f.BytesDone += p.GetBytesDone()
		f.BytesTotal += p.GetBytesTotal()
	}
	return f
}

// total is the sum with the problems of n servers, in their order.
func (s *sum) total(n int) Flushed {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.numbersLocked()
	for i := range n {
		f.Problems = append(f.Problems, s.mu.problems[i]...)
	}
	return f
}
