// Package mirror keeps a copy of a group's rows at the group's neighbour on the ring, about a second old. It promises that the copy is what the rows
// were at one moment of the group's log, or says that it is not. It is no replica: what a group has committed is not safer for it. It serves to tell by
// name what was lost with a disk, and to keep what else was only there. It does not know what the rows mean.
package mirror

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"google.golang.org/protobuf/proto"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/record"
)

// Keeper keeps copies of other groups' rows in a database of its own. It answers MirrorPut and MirrorFetch.
type Keeper struct {
	rpc.UnimplementedMirrorServer
	mu sync.Mutex
	db *pebble.DB
}

// NewKeeper owns db from now on. Rows: 'h' group4: record.MirrorHead; 'r' group4 key: a row of that group. Numbers are big endian.
func NewKeeper(db *pebble.DB) *Keeper { return &Keeper{db: db} }

// Close closes the database.
func (k *Keeper) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.db.Close()
}

func headKey(g uint32) []byte { return binary.BigEndian.AppendUint32([]byte{'h'}, g) }

func rowKey(g uint32, key []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{'r'}, g), key...)
}

func (k *Keeper) head(g uint32) (*record.MirrorHead, error) {
	h := &record.MirrorHead{}
	v, c, err := k.db.Get(headKey(g))
	if errors.Is(err, pebble.ErrNotFound) {
		return h, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read mirror of group %d: %w", g, err)
	}
	if err := proto.Unmarshal(v, h); err != nil {
		return nil, errors.Join(objcache.Errorf(objcache.Corrupt, "mirror of group %d: %w", g, err), c.Close())
	}
	return h, c.Close()
}

// Put takes rows in. The failure is Precondition when the copy here is of a life of the group that the sender has not taken over: what it alone may still tell must not
// be overwritten.
func (k *Keeper) Put(_ context.Context, r *rpc.MirrorPut) (*rpc.MirrorState, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	resync, err := k.put(r)
	return &rpc.MirrorState{Resync: resync, Failure: rpc.FailureOf(err)}, nil
}

func (k *Keeper) put(r *rpc.MirrorPut) (resync bool, err error) {
	h, err := k.head(r.GetGroup())
	if err != nil {
		return false, err
	}
	if old := h.GetIncarnation(); old != "" && old != r.GetIncarnation() && !slices.Contains(r.GetFormer(), old) {
		return false, objcache.Errorf(objcache.Precondition, "the copy of group %d is of its life %s, which %s has not taken over", r.GetGroup(), old, r.GetIncarnation())
	}
	if r.GetPage() > 0 && (!h.GetPartial() || h.GetPage() != r.GetPage()-1 || h.GetIncarnation() != r.GetIncarnation()) {
		return true, nil // the pages before went with a crash
	}
	if !r.GetWhole() && (h.GetIncarnation() != r.GetIncarnation() || !h.GetComplete() || h.GetIndex() != r.GetFrom()) {
		return true, nil
	}
	b := k.db.NewBatch()
	if err := errors.Join(k.fill(b, h, r), k.db.Apply(b, pebble.NoSync)); err != nil {
		return false, fmt.Errorf("write mirror of group %d: %w", r.GetGroup(), err)
	}
	return false, nil
}

func (k *Keeper) fill(b *pebble.Batch, h *record.MirrorHead, r *rpc.MirrorPut) error {
	g := r.GetGroup()
	if r.GetWhole() {
		upper := rowKey(g, r.GetUpper())
		if len(r.GetUpper()) == 0 {
			upper = rowKey(g+1, nil)
		}
		if err := b.DeleteRange(rowKey(g, r.GetLower()), upper, nil); err != nil {
			return err
		}
	}
	for _, row := range r.GetRows() {
		key := rowKey(g, row.GetKey())
		if row.Value == nil {
			if err := b.Delete(key, nil); err != nil {
				return err
			}
			continue
		}
		if err := b.Set(key, row.GetValue(), nil); err != nil {
			return err
		}
	}
	if h.GetIncarnation() != r.GetIncarnation() {
		h.Index, h.Taken, h.Complete = 0, 0, false
	}
	h.Incarnation, h.Reached, h.Page = r.GetIncarnation(), max(r.GetReached(), r.GetTo()), r.GetPage()
	switch {
	case r.GetTaken() == 0: // only news of the log
	case r.GetMore():
		h.Partial = true
		h.Complete = h.GetComplete() && !r.GetWhole()
	default:
		h.Index, h.Taken, h.Partial, h.Complete = r.GetTo(), r.GetTaken(), false, true
	}
	v, err := proto.Marshal(h)
	if err != nil {
		return err
	}
	return b.Set(headKey(g), v, nil)
}

// pageBytes is about how much of rows travels in one message.
const pageBytes = 2 << 20

// Fetch tells a page of what is kept of a group.
func (k *Keeper) Fetch(_ context.Context, r *rpc.MirrorFetch) (*rpc.MirrorPage, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	p, err := k.page(r)
	if err != nil {
		return &rpc.MirrorPage{Failure: rpc.FailureOf(err)}, nil
	}
	return p, nil
}

func (k *Keeper) page(r *rpc.MirrorFetch) (*rpc.MirrorPage, error) {
	h, err := k.head(r.GetGroup())
	if err != nil {
		return nil, err
	}
	p := &rpc.MirrorPage{
		Incarnation: h.GetIncarnation(), Index: h.GetIndex(), Reached: h.GetReached(), Taken: h.GetTaken(), Partial: h.GetPartial() || !h.GetComplete(), Last: true,
	}
	lower := rowKey(r.GetGroup(), r.GetAfter())
	if len(r.GetAfter()) > 0 {
		lower = append(lower, 0)
	}
	it, err := k.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: rowKey(r.GetGroup()+1, nil)})
	if err != nil {
		return nil, fmt.Errorf("read mirror of group %d: %w", r.GetGroup(), err)
	}
	size := 0
	for ok := it.First(); ok; ok = it.Next() {
		if size > pageBytes {
			p.Last = false
			break
		}
		row := &rpc.MirrorRow{Key: bytes.Clone(it.Key()[len(rowKey(0, nil)):]), Value: append([]byte{}, it.Value()...)}
		p.Rows = append(p.Rows, row)
		size += len(row.GetKey()) + len(row.GetValue())
	}
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return nil, fmt.Errorf("read mirror of group %d: %w", r.GetGroup(), err)
	}
	return p, nil
}
