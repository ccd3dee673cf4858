package group

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
)

// The end of a session, by the owner of its row: the row says that it ends, which nothing undoes; then every group logs its ENDED row and refuses the
// client from there on (FENCE); only when all have it, every group gives up what the session had (RELEASE); then the row goes. A restart goes on.

// EndSession ends a session whose row is here and waits until nothing is left of it, or ctx ends; the end goes on then.
func (g *Group) EndSession(ctx context.Context, c objcache.ClientID) error {
	done := g.beginEnd(c)
	if done == nil {
		return nil // ended before
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return objcache.Errorf(objcache.KindOf(ctx.Err()), "end of session %x: %w", uint64(c), ctx.Err())
	}
}

// ExpireSessions ends the sessions whose rows are here and of which nothing was heard since a time.
func (g *Group) ExpireSessions(before time.Time) {
	s := &g.sessions
	s.mu.Lock()
	var late []objcache.ClientID
	for c, heard := range s.mu.own {
		if heard.Before(before) {
			late = append(late, c)
		}
	}
	s.mu.Unlock()
	for _, c := range late {
		g.logger.Warn("a session was not heard of for its lease and ends", "client", fmt.Sprintf("%x", uint64(c)))
		g.beginEnd(c)
	}
}

// beginEnd starts the end of a session; nil when there is no such session.
func (g *Group) beginEnd(c objcache.ClientID) <-chan struct{} {
	s := &g.sessions
	s.mu.Lock()
	defer s.mu.Unlock()
	if done := s.mu.ending[c]; done != nil {
		return done
	}
	if _, ok := s.mu.own[c]; !ok {
		return nil
	}
	delete(s.mu.own, c) // from here on it is not renewed
	done := make(chan struct{})
	s.mu.ending[c] = done
	g.spawn(func() error {
		if g.carryEnd(c) {
			close(done)
		}
		return nil
	})
	return done
}

// carryEnd carries the end out; false: the group closes first, and the next start goes on.
func (g *Group) carryEnd(c objcache.ClientID) bool {
	ended := g.untilDone(func(context.Context) error { return g.putSession(c, &record.Session{Ending: true}) }) &&
		g.untilDone(func(ctx context.Context) error { return g.tellAll(ctx, c, false) }) &&
		g.untilDone(func(ctx context.Context) error { return g.tellAll(ctx, c, true) }) &&
		g.untilDone(func(context.Context) error {
			return g.write(g.basis(), &record.Row{Key: meta.SessionKey(c)})
		})
	if ended {
		g.sessions.mu.Lock()
		delete(g.sessions.mu.ending, c)
		g.sessions.mu.Unlock()
	}
	return ended
}

// untilDone repeats f, with growing pauses, until it succeeds or the group closes.
func (g *Group) untilDone(f func(context.Context) error) bool {
	for pause := tellFirst; ; pause = min(2*pause, tellMax) {
		ctx, cancel := context.WithTimeout(g.ctx, 5*tellMax)
		err := f(ctx)
		cancel()
		if err == nil || g.ctx.Err() != nil {
			return err == nil
		}
		g.logger.Debug("end of a session goes on later", "error", err)
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-g.ctx.Done():
			t.Stop()
			return false
		}
	}
}

func (g *Group) tellAll(ctx context.Context, c objcache.ClientID, release bool) error {
	r := &rpc.EndSessionRequest{Client: uint64(c), Release: release}
	if g.cfg.Fence == nil {
		return g.ApplyEnd(ctx, r)
	}
	work, ctx := errgroup.WithContext(ctx)
	for _, m := range g.cfg.View().Members {
		work.Go(func() error { return g.cfg.Fence(ctx, m.Group, r) })
	}
	return work.Wait()
}

// ApplyEnd is a group's part in the end of any session. It may come more than once.
func (g *Group) ApplyEnd(ctx context.Context, r *rpc.EndSessionRequest) error {
	c := objcache.ClientID(r.GetClient())
	if r.GetRelease() {
		return g.releaseSession(ctx, c)
	}
	if g.sessions.hasEnded(c) {
		return nil
	}
	v, err := proto.Marshal(&record.Ended{At: time.Now().UnixNano()})
	if err != nil {
		return fmt.Errorf("encode end of a session: %w", err)
	}
	return g.write(g.basis(), &record.Row{Key: meta.EndedKey(c), Value: v})
}

// releaseSession gives up everything a fenced session had here.
func (g *Group) releaseSession(ctx context.Context, c objcache.ClientID) error {
	g.opens.closeAll(c)
	g.expireStagedOf(c)
	if err := g.releaseFileLocks(ctx, c); err != nil {
		return err
	}
	rows, done := g.once.forget(c)
	if len(rows) == 0 {
		return nil
	}
	if err := g.write(g.basis(), rows...); err != nil {
		return err
	}
	done()
	return nil
}

// endedFor is how long an ENDED row stays. Later a late request finds no session at its owner, which the group then asks. Nothing evaluated before the
// end is on its way to the log for so long.
const endedFor = 10 * time.Minute

// CollectEnded removes ENDED rows that have done their work.
func (g *Group) CollectEnded(now time.Time) error {
	var rows []*record.Row
	lo, hi := meta.EndedBounds()
	err := meta.Scan(g.db, lo, hi, func(k, v []byte) (bool, error) {
		e := &record.Ended{}
		if err := proto.Unmarshal(v, e); err != nil {
			return false, objcache.Errorf(objcache.Corrupt, "end of a session: %w", err)
		}
		c, ok := meta.ParseEndedKey(k)
		if ok && now.UnixNano()-e.GetAt() > int64(endedFor) && !g.once.busy(c) {
			rows = append(rows, &record.Row{Key: append([]byte(nil), k...)})
		}
		return len(rows) < 1000, nil
	})
	if err != nil || len(rows) == 0 {
		return err
	}
	return g.write(g.basis(), rows...)
}
