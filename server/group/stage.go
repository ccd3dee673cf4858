package group

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/failpoint"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
	"github.com/objcache/objcache/server/ring"
	"github.com/objcache/objcache/server/txn"
)

// stage holds outstanding writes: bytes on the chunk store's disk that no committed flush names yet. They are known in memory only; a
// restart loses them, a flush then answers StageLost and the client, which keeps its copy until the flush commits, sends them again.
type stage struct {
	mu struct {
		sync.Mutex
		chunks map[stageKey]*stagedChunk
		count  uint64
		bytes  int64
	}
}

type stageKey struct {
	client objcache.ClientID
	chunk  objcache.ChunkKey
}

type stagedChunk struct {
	writes []stagedWrite // by seq
	last   time.Time
}

type stagedWrite struct {
	seq    uint64
	extent *record.Extent
	placed *record.Placed
}

func (s *stage) init() { s.mu.chunks = map[stageKey]*stagedChunk{} }

// Stage writes bytes of a chunk to disk for a later flush. They are durable only when a flush that names them commits.
func (g *Group) Stage(ctx context.Context, c objcache.ClientID, r *rpc.StageRequest) error {
	k := objcache.ChunkKey{Ino: objcache.Ino(r.GetIno()), Index: r.GetChunk()}
	if !g.Owns(ring.HashChunk(k)) {
		return objcache.Errorf(objcache.NotOwner, "chunk %v", k)
	}
	failpoint.Hit(failpoint.StageReceived)
	x, pl, err := g.WriteExtent(ctx, k, r.GetOff(), r.GetData())
	if err != nil {
		return err
	}
	failpoint.Hit(failpoint.StageWritten)
	if !g.staged.add(stageKey{c, k}, stagedWrite{r.GetSeq(), x, pl}) {
		g.FreePlaced([]*record.Placed{pl})
	}
	if g.sessions.hasEnded(c) { // perhaps after its staged bytes were given up
		g.expireStaged(stageKey{c, k})
		return fenced(c)
	}
	failpoint.Hit(failpoint.StageRemembered)
	return nil
}

// expireStagedOf frees what a session that has ended has staged.
func (g *Group) expireStagedOf(c objcache.ClientID) {
	g.staged.mu.Lock()
	var keys []stageKey
	for k := range g.staged.mu.chunks {
		if k.client == c {
			keys = append(keys, k)
		}
	}
	g.staged.mu.Unlock()
	for _, k := range keys {
		g.expireStaged(k)
	}
}

// WriteExtent writes bytes of a chunk to disk; they are durable after Sync.
func (g *Group) WriteExtent(ctx context.Context, k objcache.ChunkKey, off int64, data []byte) (*record.Extent, *record.Placed, error) {
	if off < 0 || len(data) == 0 || off+int64(len(data)) > objcache.ChunkSize {
		return nil, nil, objcache.Errorf(objcache.Invalid, "%d bytes at %d of chunk %v", len(data), off, k)
	}
	pl, err := g.cfg.Bytes.Write(ctx, k, off, data)
	if err != nil {
		return nil, nil, err
	}
	id := g.numbers.extent()
	x := &record.Extent{Id: id, Start: off, Len: int64(len(data)), Crcs: pl.CRCs, VisibleOff: off, VisibleLen: int64(len(data))}
	return x, &record.Placed{Id: id, Ino: uint64(k.Ino), Chunk: k.Index, Place: recordPlace(pl)}, nil
}

// Sync makes everything written before durable.
func (g *Group) Sync(ctx context.Context) error { return g.cfg.Bytes.Sync(ctx) }

// syncStaged makes the staged bytes that steps name durable.
func (g *Group) syncStaged(ctx context.Context, steps []*rpc.Step) error {
	if slices.ContainsFunc(steps, func(s *rpc.Step) bool { return s.GetCommitChunk().GetSeq() > 0 }) {
		return g.cfg.Bytes.Sync(ctx)
	}
	return nil
}

// add is false when the same write is there already, sent before: a transaction may be naming that copy, so it stays.
func (s *stage) add(k stageKey, w stagedWrite) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.mu.chunks[k]
	if c == nil {
		c = &stagedChunk{}
		s.mu.chunks[k] = c
	}
	i, found := slices.BinarySearchFunc(c.writes, w.seq, func(a stagedWrite, seq uint64) int { return cmp.Compare(a.seq, seq) })
	c.last = time.Now()
	if found {
		return false
	}
	c.writes = slices.Insert(c.writes, i, w)
	s.mu.count++
	s.mu.bytes += w.extent.GetLen()
	return true
}

// get returns writes first..last, all of them or none.
func (s *stage) get(c objcache.ClientID, k objcache.ChunkKey, first, last uint64) ([]*record.Extent, []*record.Placed, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var xs []*record.Extent
	var ps []*record.Placed
	next := first
	if sc := s.mu.chunks[stageKey{c, k}]; sc != nil {
		for _, w := range sc.writes {
			if w.seq == next && next <= last {
				xs, ps = append(xs, w.extent), append(ps, w.placed)
				next++
			}
		}
	}
	return xs, ps, next == last+1
}

// consume forgets what committed steps named, and frees what the client staged before and did not name.
func (g *Group) consume(steps []*rpc.Step) {
	for _, st := range steps {
		c := st.GetCommitChunk()
		if c.GetSeq() == 0 {
			continue
		}
		k := stageKey{objcache.ClientID(c.GetClient()), objcache.ChunkKey{Ino: objcache.Ino(c.GetIno()), Index: c.GetChunk()}}
		for _, w := range g.staged.drop(k, c.GetSeq()) {
			if w.seq < c.GetFirst() {
				g.FreePlaced([]*record.Placed{w.placed})
			}
		}
	}
}

// FreePlaced gives back the places of extents that no committed transaction names, nor ever will.
func (g *Group) FreePlaced(ps []*record.Placed) {
	for _, p := range ps {
		g.cfg.Bytes.Free(objcache.ChunkKey{Ino: objcache.Ino(p.GetIno()), Index: p.GetChunk()}, placeOf(p.GetPlace()), g.applied.Load())
	}
}

func (s *stage) drop(k stageKey, upTo uint64) (dropped []stagedWrite) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sc := s.mu.chunks[k]
	if sc == nil {
		return nil
	}
	n := 0
	for n < len(sc.writes) && sc.writes[n].seq <= upTo {
		s.mu.bytes -= sc.writes[n].extent.GetLen()
		s.mu.count--
		n++
	}
	dropped = sc.writes[:n]
	if sc.writes = sc.writes[n:]; len(sc.writes) == 0 {
		delete(s.mu.chunks, k)
	}
	return dropped
}

// ExpireStaged frees what was staged by nobody who is alive, and not added to since a time: by appends, and by sessions that have ended.
func (g *Group) ExpireStaged(before time.Time, alive func(objcache.ClientID) bool) {
	g.staged.mu.Lock()
	var old []stageKey
	for k, c := range g.staged.mu.chunks {
		if c.last.Before(before) && !alive(k.client) {
			old = append(old, k)
		}
	}
	g.staged.mu.Unlock()
	for _, k := range old {
		g.expireStaged(k)
	}
}

// expireStaged holds the lock under which a flush would commit the bytes: they are named by a transaction or freed, never both.
func (g *Group) expireStaged(k stageKey) {
	ctx, cancel := context.WithTimeout(g.ctx, time.Second)
	defer cancel()
	age := txn.Age{Start: time.Now().UnixNano(), Client: g.PrivateClient()}
	held, err := g.locks.Acquire(ctx, []string{meta.LockChunks(uint64(k.chunk.Ino))}, age, false)
	if err != nil {
		return // in use; the next round comes back
	}
	defer held.Release()
	for _, w := range g.staged.drop(k, ^uint64(0)) {
		g.FreePlaced([]*record.Placed{w.placed})
	}
}

// StagedInos lists the files with outstanding writes that nobody has added to since a time.
func (g *Group) StagedInos(before time.Time) []objcache.Ino {
	g.staged.mu.Lock()
	defer g.staged.mu.Unlock()
	var inos []objcache.Ino
	for k, c := range g.staged.mu.chunks {
		if c.last.Before(before) {
			inos = append(inos, k.chunk.Ino)
		}
	}
	slices.Sort(inos)
	return slices.Compact(inos)
}

// DropStaged frees the outstanding writes of a file that is gone.
func (g *Group) DropStaged(ino objcache.Ino) {
	g.staged.mu.Lock()
	var keys []stageKey
	for k := range g.staged.mu.chunks {
		if k.chunk.Ino == ino {
			keys = append(keys, k)
		}
	}
	g.staged.mu.Unlock()
	for _, k := range keys {
		g.expireStaged(k)
	}
}

// Outstanding returns the number and bytes of staged writes.
func (g *Group) Outstanding() (writes uint64, bytes int64) {
	g.staged.mu.Lock()
	defer g.staged.mu.Unlock()
	return g.staged.mu.count, g.staged.mu.bytes
}

// SyncFor makes the staged bytes durable that steps of this group's own name.
func (g *Group) SyncFor(ctx context.Context, steps []*rpc.Step) error {
	own, _ := g.partition(g.cfg.View(), steps)
	return g.syncStaged(ctx, own)
}

// PrivateClient is a fresh id for bytes that the group itself stages.
func (g *Group) PrivateClient() objcache.ClientID {
	for {
		if c := objcache.ClientID(rand.Uint64()); c != 0 {
			return c
		}
	}
}
