package group

import (
	"maps"

	"github.com/objcache/objcache/server/meta"
)

// Counts are what a group holds, for status.
type Counts struct {
	Inodes, Chunks, Owing uint64
}

// Count counts the group's rows. It reads all of them.
func (g *Group) Count() (Counts, error) {
	var c Counts
	lo, hi := meta.ReplicatedBounds()
	err := meta.Scan(g.db, lo, hi, func(k, _ []byte) (bool, error) {
		switch meta.RowKind(k) {
		case 'i':
			c.Inodes++
		case 'x':
			c.Chunks++
		case 0:
			if _, _, ok := meta.ParseDirtyKey(k); ok {
				c.Owing++
			}
		}
		return true, nil
	})
	return c, err
}

// Ended says how a transaction ended that this group coordinated.
type Ended struct {
	Several bool // other groups took part
	Failed  bool // refused, or its outcome is unknown
}

// ended counts a transaction.
func (g *Group) ended(several bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.ended[Ended{several, err != nil}]++
}

// Transactions is how many ended since the start, by how.
func (g *Group) Transactions() map[Ended]uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.mu.ended)
}
