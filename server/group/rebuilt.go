package group

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"google.golang.org/protobuf/proto"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
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

// Row is what is known of it. Not to be changed.
func (r *Rebuilt) Row() *record.Rebuilt { return r.row }

// terms is added to the terms of a log that began again, so that transaction numbers go on.
func (r *Rebuilt) terms() uint64 {
	if r == nil {
		return 0
	}
	return r.row.GetTerm()
}

// tookOver reports whether this group speaks for an earlier life: what that has decided and did not tell its neighbour is undone.
func (r *Rebuilt) tookOver(incarnation string) bool {
	return r != nil && (r.row.GetTaken() == 0 || slices.Contains(r.row.GetFormer(), incarnation))
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
	return nil
}
