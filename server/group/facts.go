package group

import (
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/record"
	"github.com/objcache/objcache/server/ring"
)

// facts are what the leader knows beside the rows (meta.Facts).
type facts struct{ g *Group }

// HasOpen is true for everything until sessions have had time to say what they have open.
func (f facts) HasOpen(ino objcache.Ino) bool { return f.g.HasOpen(ino) }

func (f facts) Listing(dir objcache.Ino) bool {
	f.g.mu.Lock()
	defer f.g.mu.Unlock()
	return f.g.mu.listing[dir] > 0
}

func (f facts) Staged(c objcache.ClientID, k objcache.ChunkKey, first, last uint64) ([]*record.Extent, []*record.Placed, bool) {
	return f.g.staged.get(c, k, first, last)
}

func (f facts) Owns(k objcache.ChunkKey) bool { return f.g.Owns(ring.HashChunk(k)) }

func (f facts) Now() int64 { return time.Now().UnixNano() }

func (f facts) NextExtent() uint64 { return f.g.numbers.extent() }

// HasOpen reports whether a session has the inode open, or nobody can know yet.
func (g *Group) HasOpen(ino objcache.Ino) bool {
	if g.counts.replayed && time.Since(g.started) < g.cfg.Grace {
		return true
	}
	return g.opens.has(ino)
}

// KnownOpen reports whether a session has said that it has the inode open.
func (g *Group) KnownOpen(ino objcache.Ino) bool { return g.opens.has(ino) }
