package group

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"google.golang.org/protobuf/proto"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
	"github.com/objcache/objcache/server/txn"
)

// Rebuilt says how a group began again after the loss of its disk.
type Rebuilt struct {
	row *record.Rebuilt
}

// rebuiltRow is a row of this replica alone: record.Rebuilt.
var rebuiltRow = []byte("Lr")

// ReadRebuilt is nil for a group that never lost its disk.
func ReadRebuilt(db pebble.Reader) (*Rebuilt, error) {
	row := &record.Rebuilt{}
	ok, err := meta.Get(db, rebuiltRow, row)
	if err != nil || !ok {
		return nil, err
	}
	return &Rebuilt{row}, nil
}

// Row is what is known of it, nil without a loss. Not to be changed.
func (r *Rebuilt) Row() *record.Rebuilt {
	if r == nil {
		return nil
	}
	return r.row
}

// terms is added to the terms of a log that began again, so that transaction numbers go on.
func (r *Rebuilt) terms() uint64 {
	if r == nil {
		return 0
	}
	return r.row.GetTerm()
}

// tookOver reports whether this group speaks for an earlier life: what that has decided and did not tell its neighbour is undone.
func (r *Rebuilt) tookOver(incarnation string) bool {
	return r != nil && incarnation != ""
}

// Install begins a group's rows with those of a mirror. Bytes on the lost disk, and what rows say of them, are left out; numbers go on far behind all
// that the lost group can have given away.
func Install(db *pebble.DB, row *record.Rebuilt, rows func() (key, value []byte, err error)) error {
	b := db.NewBatch()
	flush := func() error {
		err := db.Apply(b, pebble.NoSync)
		b = db.NewBatch()
		return err
	}
	next := &record.Allocation{}
	for {
		k, v, err := rows()
		if err != nil {
			return err
		}
		if k == nil {
			break
		}
		if string(k) == string(meta.AllocationKey()) {
			if err := proto.Unmarshal(v, next); err != nil {
				return objcache.Errorf(objcache.Corrupt, "mirror: allocation: %w", err)
			}
			continue
		}
		if v, err = meta.Transplant(k, v); err != nil {
			return err
		}
		if err := b.Set(k, v, nil); err != nil {
			return err
		}
		if b.Len() > 1<<20 {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	next.NextIno, next.NextExtent = leap(next.GetNextIno()), leap(next.GetNextExtent())
	if row.GetTaken() == 0 { // nothing is known of the numbers of before, perhaps not for the first time
		next.NextIno += row.GetTerm() << 15
	}
	v, err := proto.Marshal(next)
	if err != nil {
		return fmt.Errorf("encode allocation: %w", err)
	}
	w, err := proto.Marshal(row)
	if err != nil {
		return fmt.Errorf("encode what was rebuilt: %w", err)
	}
	return errors.Join(b.Set(meta.AllocationKey(), v, nil), b.Set(rebuiltRow, w, nil), flush(), db.Flush())
}

// leapBits: numbers of a rebuilt group go on at the next multiple of 2^28 beyond one that is skipped whole. A group may lose its disk about thirty times
// before its numbers end (numbers.go), and a copy that lags 200 million new files behind is still safe.
const leapBits = 28

func leap(n uint64) uint64 { return (n>>leapBits + 2) << leapBits }

// Comparing reports whether the group lost its disk and what it has now may still contradict other groups.
func (g *Group) Comparing() bool { return g.comparing.Load() }

// Doubts are the promises here that wait for a coordinator's word.
func (g *Group) Doubts() map[objcache.TxID]bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	ids := map[objcache.TxID]bool{}
	for id := range g.mu.prepared {
		ids[id] = true
	}
	return ids
}

// AppliedIn is the index of the last entry of the log that rows hold.
func AppliedIn(r meta.Reader) (uint64, error) {
	v, c, err := r.Get(appliedRow)
	if errors.Is(err, pebble.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read applied index: %w", err)
	}
	return binary.BigEndian.Uint64(v), c.Close()
}

// Lost is a chunk of this group whose bytes are not on the disk any more.
type Lost struct {
	Chunk   objcache.ChunkKey
	Version uint64 // of the file, in which they were committed
}

// LostChunks lists the chunks with extents that have no place on the disk. Pins of such extents are dropped: their uploads begin again.
func (g *Group) LostChunks(ctx context.Context) (out []Lost, err error) {
	var pinned []objcache.ChunkKey
	lo, hi := meta.ReplicatedBounds()
	err = meta.Scan(g.db, lo, hi, func(k, v []byte) (bool, error) {
		if meta.RowKind(k) != 'x' {
			return true, nil
		}
		c := &record.Chunk{}
		if err := proto.Unmarshal(v, c); err != nil {
			return false, objcache.Errorf(objcache.Corrupt, "row %x: %w", k, err)
		}
		key := meta.ParseChunkKey(k)
		switch lost, err := g.without(c.GetExtents()); {
		case err != nil:
			return false, err
		case lost:
			out = append(out, Lost{key, c.GetVersion()})
		}
		for _, p := range c.GetPins() {
			lost, err := g.without(p.GetExtents())
			if err != nil {
				return false, err
			}
			if lost {
				pinned = append(pinned, key)
			}
		}
		return ctx.Err() == nil, nil
	})
	for _, k := range pinned {
		err = errors.Join(err, g.rewriteChunk(ctx, k, func(c *record.Chunk) error {
			var bad error
			c.Pins = slices.DeleteFunc(c.Pins, func(p *record.Pin) bool {
				lost, err := g.without(p.GetExtents())
				bad = errors.Join(bad, err)
				return lost
			})
			return bad
		}))
	}
	return out, err
}

// without reports whether an extent has neither bytes in its row nor a place.
func (g *Group) without(xs []*record.Extent) (bool, error) {
	for _, x := range xs {
		if len(x.GetData()) > 0 {
			continue
		}
		ok, err := meta.Get(g.db, placeRow(x.GetId()), &record.Placed{})
		if err != nil || !ok {
			return true, err
		}
	}
	return false, nil
}

// DropChunk forgets what was committed of a chunk up to a version: external storage has it, or the file is gone.
func (g *Group) DropChunk(ctx context.Context, k objcache.ChunkKey, upTo uint64) error {
	return g.rewriteChunk(ctx, k, func(c *record.Chunk) error {
		if c.GetVersion() <= upTo {
			c.Extents, c.Dirty = nil, false
		}
		return nil
	})
}

// rewriteChunk changes a chunk's row. What it names no more has no place on this disk.
func (g *Group) rewriteChunk(ctx context.Context, k objcache.ChunkKey, change func(*record.Chunk) error) error {
	held, err := g.locks.Acquire(ctx, []string{meta.LockChunks(uint64(k.Ino))}, txn.Age{Start: time.Now().UnixNano(), Client: g.PrivateClient()}, false)
	if err != nil {
		return err
	}
	defer held.Release()
	b := g.basis()
	c, err := meta.Chunk(g.db, k)
	if err != nil || c == nil {
		return err
	}
	if err := change(c); err != nil {
		return err
	}
	row := &record.Row{Key: meta.ChunkKey(k)}
	if len(c.GetExtents()) > 0 || len(c.GetPins()) > 0 {
		if row.Value, err = (proto.MarshalOptions{Deterministic: true}).Marshal(c); err != nil {
			return fmt.Errorf("encode chunk: %w", err)
		}
	}
	return g.write(b, row)
}

// Rebuilt tells how the group began again; nil if it never lost its disk.
func (g *Group) Rebuilt() *Rebuilt { return g.rebuilt }

// SetCompared notes that a rebuilt group has been compared with all others.
func (g *Group) SetCompared() error {
	row := proto.CloneOf(g.rebuilt.row)
	row.Compared = true
	v, err := proto.Marshal(row)
	if err != nil {
		return fmt.Errorf("encode what was rebuilt: %w", err)
	}
	if err := errors.Join(g.db.Set(rebuiltRow, v, pebble.NoSync), g.db.Flush()); err != nil {
		return fmt.Errorf("write what was rebuilt: %w", err)
	}
	g.comparing.Store(false)
	return nil
}

// ForgetLosses removes the rows of losses up to a time, ns.
func (g *Group) ForgetLosses(upTo int64) error {
	for {
		var rows []*record.Row
		err := meta.Losses(g.db, func(l *record.Loss) bool {
			if l.GetAt() <= upTo {
				rows = append(rows, &record.Row{Key: meta.LossKey(l.GetAt(), objcache.Ino(l.GetIno()))})
			}
			return l.GetAt() <= upTo && len(rows) < 1000
		})
		if err != nil || len(rows) == 0 {
			return err
		}
		if err := g.write(g.basis(), rows...); err != nil {
			return err
		}
	}
}

// askSurvivors decides a transaction that the lost disk may have decided: committed if any group was told so, else aborted. Nobody else can tell anybody
// any more.
func (g *Group) askSurvivors(ctx context.Context, r *rpc.QueryRequest) (*rpc.QueryReply, error) {
	for _, m := range g.cfg.View().Members {
		if m.Group == g.id {
			continue
		}
		q := proto.CloneOf(r)
		q.Group, q.Finished = uint32(m.Group), true
		reply, err := g.cfg.Peers.Query(ctx, m.Group, q)
		if err != nil {
			return nil, err
		}
		if reply.GetOutcome() == rpc.QueryReply_COMMITTED {
			return reply, nil
		}
	}
	return &rpc.QueryReply{Outcome: rpc.QueryReply_ABORTED}, nil
}

// finished tells a coordinator that lost its disk whether this group was told of a commit.
func (g *Group) finished(r *rpc.QueryRequest) (*rpc.QueryReply, error) {
	f := &record.Finished{}
	if _, err := meta.Get(g.db, meta.FinishedKey(r.GetIncarnation(), r.GetTxSeq()), f); err != nil {
		return nil, err
	}
	if f.GetCommitted() {
		return &rpc.QueryReply{Outcome: rpc.QueryReply_COMMITTED}, nil
	}
	return &rpc.QueryReply{Outcome: rpc.QueryReply_UNKNOWN}, nil
}
