package group

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/failpoint"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
	"github.com/objcache/objcache/server/txn"
)

// counts are what status shows; they are counted at a start and kept by apply.
type counts struct {
	replayed bool // the group had state when it started
}

// recover brings back what only memory held: bytes in use, locks of promises, decisions not yet delivered, results.
func (g *Group) recover(ctx context.Context) error {
	if err := g.log.WaitLeader(ctx); err != nil {
		return err
	}
	failpoint.Hit(failpoint.RecoverBegun)
	replayed, err := meta.Get(g.db, meta.AllocationKey(), &record.Allocation{}) // the first thing a group ever logs
	if err != nil {
		return err
	}
	g.counts.replayed = replayed
	if err := g.adoptView(); err != nil {
		return err
	}
	if err := g.retain(); err != nil {
		return err
	}
	if err := g.once.restore(g.db); err != nil {
		return err
	}
	if err := g.restoreSessions(); err != nil {
		return err
	}
	if err := g.restorePromises(); err != nil {
		return err
	}
	failpoint.Hit(failpoint.RecoverPromises)
	if err := g.numbers.open(g); err != nil {
		return err
	}
	return g.restoreDecisions()
}

// retain tells the chunk store which places are in use; the rest is free.
func (g *Group) retain() error {
	one := func(p *record.Placed) {
		g.cfg.Bytes.Retain(objcache.ChunkKey{Ino: objcache.Ino(p.GetIno()), Index: p.GetChunk()}, placeOf(p.GetPlace()))
	}
	err := meta.Scan(g.db, []byte("Lp"), []byte("Lq"), func(_, v []byte) (bool, error) {
		p := &record.Placed{}
		if err := proto.Unmarshal(v, p); err != nil {
			return false, objcache.Errorf(objcache.Corrupt, "place of an extent: %w", err)
		}
		one(p)
		return true, nil
	})
	if err != nil {
		return err
	}
	err = g.scanPromises(func(p *record.Prepared) {
		for _, pl := range p.GetPlaced() {
			one(pl)
		}
	})
	if err != nil {
		return err
	}
	if err := g.cfg.Bytes.Started(); err != nil {
		return err
	}
	failpoint.Hit(failpoint.ChunkStarted)
	g.live.Store(true)
	g.cfg.Bytes.OnShort(g.Flush)
	return nil
}

func (g *Group) scanPromises(f func(*record.Prepared)) error {
	lo, hi := meta.PreparedBounds()
	return meta.Scan(g.db, lo, hi, func(_, v []byte) (bool, error) {
		p := &record.Prepared{}
		if err := proto.Unmarshal(v, p); err != nil {
			return false, objcache.Errorf(objcache.Corrupt, "promise: %w", err)
		}
		f(p)
		return true, nil
	})
}

func txOf(t *record.TxID) objcache.TxID {
	return objcache.TxID{Client: objcache.ClientID(t.GetClient()), Seq: objcache.SeqNum(t.GetSeq()), TxSeq: t.GetTxSeq()}
}

func (g *Group) restorePromises() error {
	return g.scanPromises(func(p *record.Prepared) {
		keys := make([]string, 0, len(p.GetLocks()))
		for _, k := range p.GetLocks() {
			keys = append(keys, string(k))
		}
		id := txOf(p.GetTx())
		g.mu.Lock()
		defer g.mu.Unlock()
		restored := &prepared{
			held:        g.locks.Restore(keys, txn.Age{Start: p.GetStart(), Client: id.Client, Seq: id.Seq}),
			coordinator: objcache.GroupID(p.GetCoordinator()), incarnation: p.GetIncarnation(),
		}
		restored.machine.Step(txn.Event{Kind: txn.Restarted}, false)
		g.mu.prepared[id] = restored
	})
}

func (g *Group) restoreDecisions() error {
	lo, hi := meta.DecisionBounds()
	return meta.Scan(g.db, lo, hi, func(_, v []byte) (bool, error) {
		d := &record.Decision{}
		if err := proto.Unmarshal(v, d); err != nil {
			return false, objcache.Errorf(objcache.Corrupt, "decision: %w", err)
		}
		groups := make([]objcache.GroupID, 0, len(d.GetParticipants()))
		for _, p := range d.GetParticipants() {
			groups = append(groups, objcache.GroupID(p))
		}
		machine, _ := txn.Recover(len(groups))
		g.tell(txOf(d.GetTx()), groups, &machine)
		return true, nil
	})
}
