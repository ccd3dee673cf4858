package group

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/chunk"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
)

// Damage is an extent of this group whose bytes are gone: external storage does not have them, and the disk does not have them any more.
type Damage struct {
	Chunk  objcache.ChunkKey
	Extent uint64
	Err    error // Corrupt; names the file on the disk
}

// damages knows the extents that were found damaged since the start, by a reader or by the scrub.
type damages struct {
	mu   sync.Mutex
	byID map[uint64]Damage
}

func (d *damages) add(x Damage) (first bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, known := d.byID[x.Extent]
	if d.byID == nil {
		d.byID = map[uint64]Damage{}
	}
	d.byID[x.Extent] = x
	return !known
}

// damaged notes what a read of an extent found, and passes the error on.
func (g *Group) damaged(k objcache.ChunkKey, extent uint64, err error) error {
	if errors.Is(err, objcache.Corrupt) && g.damages.add(Damage{k, extent, err}) {
		g.logger.Error("bytes that external storage does not have are damaged on this disk", "chunk", k, "extent", extent, "error", err)
	}
	return err
}

// Damaged lists the damaged extents that files still consist of, by chunk.
func (g *Group) Damaged() ([]Damage, error) {
	g.damages.mu.Lock()
	var out []Damage
	for _, d := range g.damages.byID {
		out = append(out, d)
	}
	g.damages.mu.Unlock()
	var live []Damage
	for _, d := range out {
		ok, err := meta.Get(g.db, placeRow(d.Extent), &record.Placed{})
		if err != nil {
			return nil, err
		}
		if ok {
			live = append(live, d)
			continue
		}
		g.damages.mu.Lock()
		delete(g.damages.byID, d.Extent)
		g.damages.mu.Unlock()
	}
	slices.SortFunc(live, func(a, b Damage) int {
		return cmp.Or(cmp.Compare(a.Chunk.Ino, b.Chunk.Ino), cmp.Compare(a.Chunk.Index, b.Chunk.Index), cmp.Compare(a.Extent, b.Extent))
	})
	return live, nil
}

// scrubBatch is how many places are listed at once: a long scan would keep old rows on the disk.
const scrubBatch = 256

// Scrub reads every extent of the group as it is on the disk and compares checksums; what does not match is Damaged from then on. It returns the bytes read.
// It ends with ctx.
func (g *Group) Scrub(ctx context.Context, pace chunk.Pace) (read int64, err error) {
	for next := placeRow(0); ; {
		batch, err := g.places(next)
		if err != nil || len(batch) == 0 {
			return read, err
		}
		for _, p := range batch {
			if err := g.verify(ctx, p, pace); err != nil {
				return read, err
			}
			read += p.GetPlace().GetLen()
		}
		next = placeRow(batch[len(batch)-1].GetId() + 1)
	}
}

func (g *Group) places(from []byte) (out []*record.Placed, err error) {
	err = meta.Scan(g.db, from, []byte("Lq"), func(_, v []byte) (bool, error) {
		p := &record.Placed{}
		if err := proto.Unmarshal(v, p); err != nil {
			return false, objcache.Errorf(objcache.Corrupt, "place of an extent: %w", err)
		}
		out = append(out, p)
		return len(out) < scrubBatch, nil
	})
	return out, err
}

// verify looks at one extent. What was freed while it was being read is no damage.
func (g *Group) verify(ctx context.Context, p *record.Placed, pace chunk.Pace) error {
	k := objcache.ChunkKey{Ino: objcache.Ino(p.GetIno()), Index: p.GetChunk()}
	err := g.cfg.Bytes.Verify(ctx, k, placeOf(p.GetPlace()), pace)
	if !errors.Is(err, objcache.Corrupt) {
		return err
	}
	if ok, rerr := meta.Get(g.db, placeRow(p.GetId()), &record.Placed{}); rerr != nil || !ok {
		return rerr
	}
	_ = g.damaged(k, p.GetId(), err) // noted; the scrub goes on
	return nil
}
