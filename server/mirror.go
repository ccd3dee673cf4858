package server

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/client"
	"github.com/objcache/objcache/server/group"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/mirror"
	"github.com/objcache/objcache/server/record"
)

// openKeeper opens what this server keeps of its neighbours' rows.
func (s *Server) openKeeper() error {
	dir := filepath.Join(s.cfg.StateDir, "mirror")
	cache := pebble.NewCache(4 << 20)
	defer cache.Unref()
	o := &pebble.Options{FS: s.on.Disk, Cache: cache, MemTableSize: 4 << 20, MaxOpenFiles: 64, Logger: pebbleLog{s.logger}}
	s.on.Rows(o)
	o.DisableWAL = false // nothing else could bring these rows back
	db, err := pebble.Open(dir, o)
	if err != nil {
		return objcache.Errorf(objcache.Corrupt, "mirror in %s: %w", dir, err)
	}
	s.keeper = mirror.NewKeeper(db)
	return nil
}

// keeperOf is the group behind another on the ring of all groups: its server keeps the other's mirror. false for the only group.
func (s *Server) keeperOf(g objcache.GroupID) (objcache.GroupID, bool) {
	ms := s.View().Members
	for i, m := range ms {
		if m.Group == g && len(ms) > 1 {
			return ms[(i+1)%len(ms)].Group, true
		}
	}
	return 0, false
}

// openSender makes what tells the neighbour about this group's rows. Nothing is sent before the group has its keeper's copy back, if it lost its disk.
func (s *Server) openSender(db *pebble.DB) {
	self := objcache.GroupID(s.self().Group)
	to, ok := s.keeperOf(self)
	if !ok {
		return
	}
	s.mirror = &mirror.Sender{Group: self, DB: db, Logger: s.logger, Applied: group.AppliedIn, Superseded: s.superseded, Put: func(ctx context.Context, r *rpc.MirrorPut) (*rpc.MirrorState, error) {
		return client.Mirrors{Router: s.router}.Put(ctx, to, r)
	}}
	s.metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "objcache_server_mirror_age_seconds", Help: "Age of the copy of this group's rows that its neighbour keeps; -1: it has none.",
	}, func() float64 {
		age, ok := s.mirror.Age(time.Now())
		if !ok {
			return -1
		}
		return age.Seconds()
	}))
}

// Mirrored is the entry of the log as of which the neighbour has a copy of the group's rows; 0: it has none.
func (s *Server) Mirrored() uint64 {
	if s.mirror == nil {
		return 0
	}
	return s.mirror.Index()
}

// superseded ends a server whose group the neighbour knows by another life: it was started on an empty disk as if it were new, or on an old one after
// the group had been rebuilt elsewhere. What it has is not what the cluster agreed on.
func (s *Server) superseded(err error) {
	s.fail(fmt.Errorf("this state directory is not that of the group's last life; if the cluster is right, empty it and set formed: true: %w", err))
}

// changed hears what entries of the log change.
func (s *Server) changed() func(uint64, [][]byte) {
	if s.mirror == nil {
		return nil
	}
	return s.mirror.Changed
}

// origin is where numbers of groups begin that nothing is known of any more, and the terms of logs that begin again count from it.
var origin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// rebuild begins the group of an empty disk with its neighbour's copy of the rows. Until the identity is written, a restart does it again.
func (s *Server) rebuild(ctx context.Context, dir string) error {
	self := objcache.GroupID(s.self().Group)
	if err := s.on.Disk.RemoveAll(dir); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	if err := s.on.Disk.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	row := &record.Rebuilt{
		At: time.Now().UnixNano(), Cause: "the disk of " + s.cfg.Name + " was lost", Term: uint64(time.Since(origin) / (10 * time.Minute)),
	}
	pages, err := s.fetchMirror(ctx, self, row)
	if err != nil {
		return err
	}
	db, err := openRows(filepath.Join(dir, "rows"), s.cfg, &s.on, s.logger)
	if err != nil {
		return err
	}
	s.logger.Error("this server has lost its disk; its group begins again with the copy of its rows that its neighbour keeps",
		"copy_of", time.Unix(0, row.GetTaken()), "entries_younger", younger(row), "copy_in_part", row.GetPartial())
	return errors.Join(group.Install(db, row, pages), db.Close())
}

// younger is how many entries of the lost log the copy does not have.
func younger(row *record.Rebuilt) uint64 {
	return max(row.GetReached(), row.GetIndex()) - row.GetIndex()
}

// fetchMirror asks the neighbour for its copy; without a neighbour, or a copy, there are no rows. It waits until the neighbour answers.
func (s *Server) fetchMirror(ctx context.Context, self objcache.GroupID, row *record.Rebuilt) (func() ([]byte, []byte, error), error) {
	from, ok := s.keeperOf(self)
	if !ok {
		return func() ([]byte, []byte, error) { return nil, nil, nil }, nil
	}
	p, err := s.fetchPage(ctx, from, self, nil)
	if err != nil {
		return nil, err
	}
	row.Taken, row.Index, row.Reached, row.Partial = p.GetTaken(), p.GetIndex(), p.GetReached(), p.GetPartial() && p.GetIncarnation() != ""
	if p.GetIncarnation() != "" {
		row.Former = []string{p.GetIncarnation()}
	}
	return func() ([]byte, []byte, error) {
		for len(p.GetRows()) == 0 {
			if p.GetLast() {
				return nil, nil, nil
			}
			if p, err = s.fetchPage(ctx, from, self, p.GetRows()); err != nil {
				return nil, nil, err
			}
		}
		r := p.GetRows()[0]
		if len(p.GetRows()) > 1 || p.GetLast() {
			p.Rows = p.GetRows()[1:]
			return r.GetKey(), r.GetValue(), nil
		}
		p, err = s.fetchPage(ctx, from, self, p.GetRows())
		return r.GetKey(), r.GetValue(), err
	}, nil
}

// fetchPage fetches the page behind the last of some rows, however long the neighbour does not answer.
func (s *Server) fetchPage(ctx context.Context, from, self objcache.GroupID, after []*rpc.MirrorRow) (*rpc.MirrorPage, error) {
	q := &rpc.MirrorFetch{Group: uint32(self)}
	if len(after) > 0 {
		q.After = after[len(after)-1].GetKey()
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for said := (time.Time{}); ; {
		p, err := client.Mirrors{Router: s.router}.Fetch(ctx, from, q)
		if err == nil {
			err = p.GetFailure().Err()
		}
		if err == nil {
			return p, nil
		}
		if time.Since(said) > 10*time.Second {
			m, _ := s.View().Member(from)
			s.logger.Warn("the state directory is empty: waiting for the server that keeps a copy of what was in it", "keeper", m.Name, "error", err)
			said = time.Now()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, errors.Join(objcache.Errorf(objcache.Unavailable, "the copy of this group's rows: %w", ctx.Err()), err)
		}
	}
}

// restoreGroup brings a group that lost its disk into agreement with the others. Until then it serves nobody else.
func (s *Server) restoreGroup(life context.Context) error {
	if !s.group.Comparing() {
		return nil
	}
	began := time.Now()
	if err := s.restore.Run(life, s.group.Rebuilt().Row().GetCause()); err != nil {
		return err
	}
	s.logger.Warn("the group has been compared with the others after the loss of its disk", "took", time.Since(began))
	return nil
}

// Lost is how many files of this group are still to go back to what external storage has, because their latest content is lost.
func (s *Server) Lost() (n int, err error) {
	db := s.group.DB()
	lo, hi := meta.DirtyBounds()
	err = meta.Scan(db, lo, hi, func(k, _ []byte) (bool, error) {
		_, ino, ok := meta.ParseDirtyKey(k)
		if !ok {
			return true, nil
		}
		in, err := meta.Inode(db, ino)
		if in.GetLost() != "" && !in.GetDead() {
			n++
		}
		return true, err
	})
	return n, err
}
