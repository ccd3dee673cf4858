package group

import (
	"cmp"
	"slices"
	"time"

	"github.com/objcache/objcache"
)

// StaleStage is what a client has staged of a chunk and will never commit.
type StaleStage struct {
	Client objcache.ClientID
	Chunk  objcache.ChunkKey
	Bytes  int64
}

// staleAfter is how many leases bytes are left alone of which nobody knows who sent them: ExpireStaged should have freed them after one.
const staleAfter = 3

// StaleStaged lists what was staged by nobody who is alive and should have been freed long ago.
func (g *Group) StaleStaged() (out []StaleStage) {
	before := time.Now().Add(-staleAfter * g.cfg.Lease)
	g.staged.mu.Lock()
	for k, c := range g.staged.mu.chunks {
		if !c.last.Before(before) {
			continue
		}
		s := StaleStage{Client: k.client, Chunk: k.chunk}
		for _, w := range c.writes {
			s.Bytes += w.extent.GetLen()
		}
		out = append(out, s)
	}
	g.staged.mu.Unlock()
	out = slices.DeleteFunc(out, func(s StaleStage) bool { return g.Alive(s.Client) })
	slices.SortFunc(out, func(a, b StaleStage) int {
		return cmp.Or(cmp.Compare(a.Client, b.Client), cmp.Compare(a.Chunk.Ino, b.Chunk.Ino), cmp.Compare(a.Chunk.Index, b.Chunk.Index))
	})
	return out
}

// FreeStale frees what a client has staged if it is in StaleStaged.
func (g *Group) FreeStale(c objcache.ClientID) {
	for _, s := range g.StaleStaged() {
		if s.Client == c {
			g.expireStaged(stageKey{s.Client, s.Chunk})
		}
	}
}
