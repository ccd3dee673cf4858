package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/dev"
	"github.com/objcache/objcache/server/client"
)

const (
	createsMeasured = 1000
	creators        = 64
	createsEach     = 100
)

// creates measures transactions without a kernel in between: what one create costs that one group decides, and one that two groups decide, and how many
// clients' worth of creates servers take.
func creates(ctx context.Context, e *env, add func(row)) error {
	three, err := e.cluster.session(ctx)
	if err != nil {
		return err
	}
	defer three.close()
	if err := costs(ctx, e, three, add); err != nil {
		return err
	}
	lone, err := e.loneServer(ctx)
	if err != nil {
		return err
	}
	one, err := lone.session(ctx)
	if err != nil {
		return err
	}
	defer one.close()
	var many, few numbers
	for i := range e.runs {
		for _, at := range []struct {
			s    *session
			into *numbers
		}{{one, &few}, {three, &many}} {
			rate, err := at.s.crowd(ctx, fmt.Sprintf("crowd-%d", i), e.count(createsEach))
			if err != nil {
				return err
			}
			*at.into = append(*at.into, rate)
		}
	}
	what := fmt.Sprintf("creates of %d clients, each in a directory of its own", creators)
	add(row{What: what, Unit: "files/s", Objcache: many, Versus: "one server", Other: few, Note: "three servers share this machine's processors and disk"})
	return nil
}

// costs measures the simple kind first: some directories too are decided by one group, and what these cost is taken off.
func costs(ctx context.Context, e *env, s *session, add func(row)) error {
	var simple cost
	for _, k := range []struct {
		what string
		mode uint32
		same bool
	}{
		{"create that one group decides", objcache.ModeRegular | 0o644, true},
		{"create that two groups decide (mkdir)", objcache.ModeDir | 0o755, false},
	} {
		var p50, p99 numbers
		var spent cost
		n := 0
		for i := range e.runs {
			took, others, c, err := s.series(ctx, fmt.Sprintf("series-%d-%v", i, k.same), e.count(createsMeasured), k.mode, k.same)
			if err != nil {
				return err
			}
			slices.Sort(took)
			p50 = append(p50, milliseconds(took[len(took)/2]))
			p99 = append(p99, milliseconds(took[len(took)*99/100]))
			spent, n = spent.plus(c.minus(simple.times(float64(others)))), n+len(took)
		}
		spent = spent.times(1 / float64(n))
		if k.same {
			simple = spent
		}
		note := fmt.Sprintf("p99 %s ms; per create %.2f fdatasyncs, %.2f calls of the client, %.2f between servers", p99,
			spent.syncs, spent.client, spent.servers)
		add(row{What: k.what, Unit: "ms", Objcache: p50, Note: note})
	}
	return nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// session is a client of a cluster, without a mount.
type session struct {
	c       *client.Client
	cluster *cluster
	bucket  objcache.Ino
}

func (c *cluster) session(ctx context.Context) (*session, error) {
	st, err := dev.ReadStatus(ctx, c.state)
	if err != nil {
		return nil, err
	}
	var addresses []string
	for _, s := range st.Servers {
		addresses = append(addresses, s.Address)
	}
	cl, err := client.Open(ctx, client.Config{Servers: addresses, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		return nil, err
	}
	a, err := cl.Lookup(ctx, objcache.RootIno, direct)
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", direct, err)
	}
	return &session{c: cl, cluster: c, bucket: a.Ino}, nil
}

func (s *session) close() {
	if err := s.c.Close(); err != nil {
		say("close a session: %v", err)
	}
}

func (s *session) mkdir(ctx context.Context, name string) (objcache.Ino, error) {
	a, err := s.c.Create(ctx, s.bucket, name, objcache.NewNode{Mode: objcache.ModeDir | 0o755})
	return a.Ino, err
}

// series makes nodes one after the other until n of them were decided by one group (same) or by two. It returns how long each of these took, how many
// others were made, and what all of them cost.
func (s *session) series(ctx context.Context, name string, n int, mode uint32, same bool) (took []time.Duration, others int, spent cost, err error) {
	dir, err := s.mkdir(ctx, name)
	if err != nil {
		return nil, 0, cost{}, err
	}
	before, err := s.cluster.cost(ctx)
	if err != nil {
		return nil, 0, cost{}, err
	}
	made := 0
	for ; len(took) < n && made < 10*n; made++ {
		begin := time.Now()
		a, err := s.c.Create(ctx, dir, fmt.Sprintf("n%05d", made), objcache.NewNode{Mode: mode})
		if err != nil {
			return nil, 0, cost{}, err
		}
		d := time.Since(begin)
		if v := s.c.View(); v.OwnerOfInode(a.Ino) == v.OwnerOfInode(dir) == same {
			took = append(took, d)
		}
	}
	if len(took) < n {
		return nil, 0, cost{}, fmt.Errorf("of %d creates only %d were of the kind wanted", made, len(took))
	}
	after, err := s.cluster.cost(ctx)
	return took, made - n, after.minus(before), err
}

// crowd returns the rate of creates of many goroutines.
func (s *session) crowd(ctx context.Context, name string, each int) (float64, error) {
	top, err := s.mkdir(ctx, name)
	if err != nil {
		return 0, err
	}
	dirs := make([]objcache.Ino, creators)
	for i := range dirs {
		a, err := s.c.Create(ctx, top, fmt.Sprint(i), objcache.NewNode{Mode: objcache.ModeDir | 0o755})
		if err != nil {
			return 0, err
		}
		dirs[i] = a.Ino
	}
	begin := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	for _, d := range dirs {
		g.Go(func() error {
			for i := range each {
				if _, err := s.c.Create(ctx, d, fmt.Sprintf("f%05d", i), objcache.NewNode{Mode: objcache.ModeRegular | 0o644}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err = g.Wait()
	return float64(creators*each) / time.Since(begin).Seconds(), err
}
