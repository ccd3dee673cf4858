package group

import (
	"encoding/binary"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"google.golang.org/protobuf/proto"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/failpoint"
	"github.com/objcache/objcache/server/chunk"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
)

// Apply applies one committed entry: blindly, except that an evaluation of another term than the entry's own, or under another view than the group's, is refused. It returns an error or nil
// as the result of the proposal. It panics when the database fails: the log and the rows would part.
func (g *Group) Apply(index, term uint64, data []byte) any {
	if index <= g.applied.Load() {
		return nil
	}
	en := &record.Entry{}
	if err := proto.Unmarshal(data, en); err != nil {
		panic(fmt.Sprintf("group %d: log entry %d does not parse: %v", g.id, index, err))
	}
	b := g.db.NewBatch()
	refused := g.fill(b, en, index, term)
	must(g, index, b.Set(appliedRow, binary.BigEndian.AppendUint64(nil, index), nil))
	frees := g.collectFrees(b, en, index, refused)
	must(g, index, g.db.Apply(b, pebble.NoSync))
	g.applied.Store(index)
	failpoint.Hit(failpoint.ApplyRows)
	for _, f := range frees {
		select {
		case g.frees <- f:
		case <-g.ctx.Done(): // the next start finds what is free
		}
	}
	if refused != nil {
		return refused
	}
	return nil
}

func must(g *Group, index uint64, err error) {
	if err != nil {
		panic(fmt.Sprintf("group %d: apply log entry %d: %v", g.id, index, err))
	}
}

// fill puts the entry's effects into the batch. For a participant's decision it first fetches the promise.
func (g *Group) fill(b *pebble.Batch, en *record.Entry, index, term uint64) error {
	if err := g.afterEnd(en); err != nil {
		return err
	}
	switch en.GetKind() {
	case record.Entry_EFFECTS, record.Entry_PREPARE, record.Entry_STAGE:
		if err := g.stale(en, term); err != nil {
			return err
		}
		g.raiseBar(b, en, index)
	case record.Entry_COMMIT:
		// A coordinator's COMMIT is an evaluation too; a participant's is only the news of it and always applies.
		if len(en.GetRows()) == 0 {
			g.fillPromise(b, en, index)
		} else if err := g.stale(en, term); err != nil {
			return err
		}
	case record.Entry_ABORT:
		g.fillAbort(b, en, index)
	case record.Entry_VIEW:
		g.applyView(b, en, index)
	}
	for _, r := range en.GetRows() {
		g.sessions.applied(r)
		if r.Value == nil {
			must(g, index, b.Delete(r.GetKey(), nil))
		} else {
			must(g, index, b.Set(r.GetKey(), r.GetValue(), nil))
		}
	}
	for _, p := range en.GetPlaced() {
		v, err := proto.Marshal(p)
		must(g, index, err)
		must(g, index, b.Set(placeRow(p.GetId()), v, nil))
	}
	return nil
}

// afterEnd refuses what a session wants that has ended before this entry of the log: Fenced. A participant's decision is no wish any more.
func (g *Group) afterEnd(en *record.Entry) error {
	c := objcache.ClientID(en.GetTx().GetClient())
	if c == 0 || en.GetKind() == record.Entry_ABORT || en.GetKind() == record.Entry_END || en.GetKind() == record.Entry_COMMIT && len(en.GetRows()) == 0 {
		return nil
	}
	if g.sessions.hasEnded(c) {
		return fenced(c)
	}
	return nil
}

func (g *Group) fillPromise(b *pebble.Batch, en *record.Entry, index uint64) {
	p := &record.Prepared{}
	ok, err := meta.Get(g.db, meta.PreparedKey(en.GetTx()), p)
	must(g, index, err)
	if !ok {
		return // decided before
	}
	must(g, index, b.Delete(meta.PreparedKey(en.GetTx()), nil))
	g.remember(b, p, index)
	en.Rows, en.Placed, en.Dropped, en.Cleaned = p.GetRows(), p.GetPlaced(), p.GetDropped(), p.GetCleaned()
}

func (g *Group) fillAbort(b *pebble.Batch, en *record.Entry, index uint64) {
	p := &record.Prepared{}
	ok, err := meta.Get(g.db, meta.PreparedKey(en.GetTx()), p)
	must(g, index, err)
	if ok {
		must(g, index, b.Delete(meta.PreparedKey(en.GetTx()), nil))
		g.remember(b, p, index)
	}
}

// freeing is work for the goroutine that turns dirty bytes into clean ones and gives dead ones back, once no reader is on them.
type freeing struct {
	key     objcache.ChunkKey
	adopt   *record.Cleaned
	pieces  []chunk.Piece
	dead    []chunk.Place
	index   uint64
	goClean bool // the chunk is gone: clean bytes too
}

// collectFrees finds the places of what the entry drops, and removes their rows. Bytes that become clean come first.
func (g *Group) collectFrees(b *pebble.Batch, en *record.Entry, index uint64, refused error) []freeing {
	if refused != nil {
		return nil
	}
	fresh := map[uint64]*record.Place{}
	for _, p := range en.GetPlaced() {
		fresh[p.GetId()] = p.GetPlace()
	}
	place := func(id uint64) (chunk.Place, bool) {
		if p, ok := fresh[id]; ok {
			return placeOf(p), true
		}
		p := &record.Placed{}
		ok, err := meta.Get(g.db, placeRow(id), p)
		must(g, index, err)
		return placeOf(p.GetPlace()), ok
	}
	var out []freeing
	for _, c := range en.GetCleaned() {
		if f, ok := adoption(c, place); ok {
			out = append(out, f)
		}
	}
	for _, d := range en.GetDropped() {
		pl, ok := place(d.GetId())
		if !ok {
			continue
		}
		must(g, index, b.Delete(placeRow(d.GetId()), nil))
		k := objcache.ChunkKey{Ino: objcache.Ino(d.GetIno()), Index: d.GetChunk()}
		out = append(out, freeing{key: k, dead: []chunk.Place{pl}, index: index})
	}
	if !g.live.Load() {
		return nil // while the log is replayed the chunk store does not know yet what is in use: recover tells it
	}
	return out
}

// adoption says how the extents of a chunk make up its whole content; false when they do not (then it is fetched again when needed).
func adoption(c *record.Cleaned, place func(uint64) (chunk.Place, bool)) (freeing, bool) {
	f := freeing{key: objcache.ChunkKey{Ino: objcache.Ino(c.GetIno()), Index: c.GetChunk()}, adopt: c}
	var at int64
	for _, x := range c.GetExtents() {
		if x.GetVisibleOff() != at || len(x.GetData()) > 0 {
			return freeing{}, false
		}
		pl, ok := place(x.GetId())
		if !ok {
			return freeing{}, false
		}
		n := min(x.GetVisibleLen(), c.GetLen()-at)
		f.pieces = append(f.pieces, chunk.Piece{Place: pl, Off: x.GetVisibleOff(), Len: n})
		if at += n; at >= c.GetLen() {
			break
		}
	}
	return f, at == c.GetLen() && at > 0
}

func placeOf(p *record.Place) chunk.Place {
	return chunk.Place{File: p.GetFile(), Off: p.GetOff(), Start: p.GetStart(), Len: p.GetLen(), CRCs: p.GetCrcs()}
}

func recordPlace(p chunk.Place) *record.Place {
	return &record.Place{File: p.File, Off: p.Off, Start: p.Start, Len: p.Len, Crcs: p.CRCs}
}

// Applied and Flush complete the state machine of package replica.

// Flush makes the rows durable, so that the log before them may be dropped and dead bytes be used again.
func (g *Group) Flush() error {
	upTo := g.applied.Load()
	failpoint.Hit(failpoint.RowsFlushBefore)
	if err := g.db.Flush(); err != nil {
		return fmt.Errorf("group %d: flush rows: %w", g.id, err)
	}
	failpoint.Hit(failpoint.RowsFlushAfter)
	g.cfg.Bytes.Durable(upTo)
	return nil
}
