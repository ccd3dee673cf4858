package transfer

import (
	"context"
	"time"

	"github.com/objcache/objcache/api/rpc"
)

// hurryFor is how long one word from a server that is short of room counts; it is repeated every scanEvery.
const hurryFor = 4 * scanEvery

// askForRoom has every server persist what is dirty, if this one is short of room: the chunks it holds belong to files of all of them. A server that does
// not hear it is asked again at the next tick.
func (t *Transfer) askForRoom(ctx context.Context) {
	if t.cfg.Pressed == nil || !t.cfg.Pressed() {
		return
	}
	t.Hurry()
	for _, m := range t.cfg.View().Members {
		if m.Group == t.cfg.Group.ID() {
			continue
		}
		t.background(func(life context.Context) {
			short, cancel := context.WithTimeout(life, scanEvery)
			defer cancel()
			if err := t.cfg.Peers.Tell(short, m.Group, &rpc.Request{Op: &rpc.Request_Hurry{Hurry: &rpc.HurryRequest{}}}); err != nil && ctx.Err() == nil {
				t.cfg.Logger.Debug("not heard when asking for room", "group", m.Group, "error", err)
			}
		})
	}
}

// Hurry makes every dirty file due for a while.
func (t *Transfer) Hurry() { t.hurried.Store(t.now().Add(hurryFor).UnixNano()) }

// dueBefore is the time since which what is dirty now must have been so to be due.
func (t *Transfer) dueBefore() time.Time {
	now := t.now()
	if now.UnixNano() < t.hurried.Load() {
		return now
	}
	return now.Add(-t.cfg.FlushInterval)
}
