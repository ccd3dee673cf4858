package group

import (
	"context"
	"log/slog"

	"github.com/cockroachdb/pebble/v2"

	"github.com/objcache/objcache"
)

// IncarnationBounds are the bounds of the row that names the group's incarnation, as text.
func IncarnationBounds() (lower, upper []byte) { return incarnationRow, []byte("Lj") }

// Replayer applies a log to rows without a group that answers anybody: no locks, no bytes, no other groups.
type Replayer struct{ g *Group }

// NewReplayer begins at the last entry that the rows hold. The database stays the caller's.
func NewReplayer(id objcache.GroupID, db *pebble.DB, logger *slog.Logger) (*Replayer, error) {
	g := &Group{id: id, db: db, logger: logger, ctx: context.Background(), frees: make(chan freeing)}
	g.sessions.init()
	return &Replayer{g}, g.openState()
}

// Apply applies a committed entry that is behind Applied; others are ignored. It panics when the database fails.
func (r *Replayer) Apply(index, term uint64, data []byte) { _ = r.g.Apply(index, term, data) }

// Applied is the index of the last entry that the rows hold.
func (r *Replayer) Applied() uint64 { return r.g.Applied() }
