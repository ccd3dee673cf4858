package group

import (
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
