// Package online checks and repairs a cluster that works: it reads the rows of all groups from their servers, as of one moment each, and brings repairs to
// them as transactions. It promises not to stop anybody: servers read from snapshots, page by page. It does not know what is right or wrong (fsck).
package online

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/client"
	"github.com/objcache/objcache/server/fsck"
	"github.com/objcache/objcache/server/ring"
)

// Config says which cluster to check.
type Config struct {
	Servers []string    // addresses of some servers; their view names the rest
	TLS     *tls.Config // nil: plain text
	Verify  bool        // servers read all bytes that external storage does not have, once, and compare checksums
}

// Cluster is a cluster that works. Not safe for concurrent use.
type Cluster struct {
	cfg    Config
	view   *ring.View
	router *client.Router
	reads  int
}

// patience bounds one question to a server; a whole check takes as long as it takes.
const patience = 10 * time.Second

// pause lies between two looks, so that what was under way is over.
const pause = 300 * time.Millisecond

// Open asks the servers for the view. Unavailable when none answers.
func Open(ctx context.Context, cfg Config) (*Cluster, error) {
	c := &Cluster{cfg: cfg}
	c.router = &client.Router{View: func() *ring.View { return c.view }, TLS: cfg.TLS}
	errs := []error{}
	for _, a := range cfg.Servers {
		err := c.learn(ctx, a)
		if err == nil {
			return c, nil
		}
		errs = append(errs, objcache.Errorf(objcache.Unavailable, "server %s: %w", a, err))
	}
	return nil, errors.Join(append(errs, c.Close())...)
}

func (c *Cluster) learn(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := c.router.Conn(address)
	if err != nil {
		return err
	}
	r, err := rpc.NewAdminClient(conn).View(ctx, &rpc.ViewRequest{})
	if err != nil {
		return rpc.FromStatus(err)
	}
	c.view, err = client.ViewOf(r)
	return err
}

// Close ends the connections.
func (c *Cluster) Close() error { return c.router.Close() }

// Check looks until every suspicion is confirmed or gone; unsure is how many are neither.
func (c *Cluster) Check(ctx context.Context) (r fsck.Report, unsure int, err error) {
	return fsck.Running(ctx, c.read)
}

// read reads the rows of all groups anew.
func (c *Cluster) read(ctx context.Context) (fsck.Cluster, error) {
	if c.reads > 0 {
		t := time.NewTimer(pause)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return fsck.Cluster{}, ctx.Err()
		}
	}
	c.reads++
	out := fsck.Cluster{View: c.view, Groups: make([]fsck.Group, len(c.view.Members))}
	work, ctx := errgroup.WithContext(ctx)
	for i, m := range c.view.Members {
		work.Go(func() (err error) {
			if out.Groups[i], err = c.group(ctx, m); err != nil {
				err = objcache.Errorf(objcache.KindOf(err), "rows of %s at %s: %w", m.Name, m.Address, err)
			}
			return err
		})
	}
	return out, work.Wait()
}

func (c *Cluster) group(ctx context.Context, m ring.Member) (fsck.Group, error) {
	g := fsck.Group{ID: m.Group, Disk: fsck.Disk{Rotten: map[uint64]string{}}}
	conn, err := c.router.Conn(m.Address)
	if err != nil {
		return g, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := rpc.NewAdminClient(conn).Rows(ctx, &rpc.RowsRequest{Verify: c.cfg.Verify && c.reads == 1})
	if err != nil {
		return g, rpc.FromStatus(err)
	}
	var rows []*rpc.RepairRow
	for {
		p, err := s.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return g, rpc.FromStatus(err)
		}
		rows = append(rows, p.GetRows()...)
		for _, x := range p.GetRotten() {
			g.Disk.Rotten[x.GetId()] = x.GetError()
		}
		for _, x := range p.GetStaged() {
			g.Disk.Staged = append(g.Disk.Staged, fsck.Staged{
				Client: objcache.ClientID(x.GetClient()), Bytes: x.GetBytes(), Chunk: objcache.ChunkKey{Ino: objcache.Ino(x.GetIno()), Index: x.GetChunk()},
			})
		}
	}
	g.Each = func(f func(k, v []byte) error) error {
		for _, r := range rows {
			if err := f(r.GetKey(), r.GetAfter()); err != nil {
				return err
			}
		}
		return nil
	}
	return g, nil
}

// Carry has a repair carried out. Conflict when rows are not as they were.
func (c *Cluster) Carry(ctx context.Context, r fsck.Repair) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	m, ok := c.view.Member(r.Group)
	if !ok {
		return objcache.Errorf(objcache.Invalid, "group %d is in no view", r.Group)
	}
	conn, err := c.router.Conn(m.Address)
	if err != nil {
		return err
	}
	reply, err := rpc.NewAdminClient(conn).Repair(ctx, &rpc.RepairRequest{Steps: r.Steps, Decide: r.Decide, ExpireStaged: r.Expire})
	if err != nil {
		return rpc.FromStatus(err)
	}
	return reply.GetFailure().Err()
}
