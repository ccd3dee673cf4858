package group

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
)

// sessions is what a group knows of clients: those whose rows it keeps (their leases), those it knows to live somewhere, and those that have ended.
type sessions struct {
	mu struct {
		sync.Mutex
		own    map[objcache.ClientID]time.Time     // rows here that live: when last heard of
		ending map[objcache.ClientID]chan struct{} // rows here that end; closed when nothing is left
		known  map[objcache.ClientID]bool          // their owner has said that they live
		ended  map[objcache.ClientID]bool          // ENDED rows, which change with the log
	}
}

func (s *sessions) init() {
	s.mu.own = map[objcache.ClientID]time.Time{}
	s.mu.ending = map[objcache.ClientID]chan struct{}{}
	s.mu.known = map[objcache.ClientID]bool{}
	s.mu.ended = map[objcache.ClientID]bool{}
}

func fenced(c objcache.ClientID) error {
	return objcache.Errorf(objcache.Fenced, "session %x", uint64(c))
}

// OpenSession begins a session whose ClientId this group owns.
func (g *Group) OpenSession(ctx context.Context, c objcache.ClientID, node string) error {
	row := &record.Session{}
	found, err := meta.Get(g.db, meta.SessionKey(c), row)
	if err != nil {
		return err
	}
	if row.GetEnding() || g.sessions.hasEnded(c) {
		return fenced(c)
	}
	if !found {
		if err := g.putSession(c, &record.Session{Node: node, Opened: time.Now().UnixNano()}); err != nil {
			return err
		}
	}
	g.sessions.mu.Lock()
	defer g.sessions.mu.Unlock()
	if g.sessions.mu.ending[c] != nil {
		return fenced(c)
	}
	g.sessions.mu.own[c] = time.Now()
	return ctx.Err()
}

func (g *Group) putSession(c objcache.ClientID, row *record.Session) error {
	v, err := proto.Marshal(row)
	if err != nil {
		return fmt.Errorf("encode session: %w", err)
	}
	return g.write(g.basis(), &record.Row{Key: meta.SessionKey(c), Value: v})
}

// RenewSession hears of a session whose row is here. Fenced when it has ended, or never was.
func (g *Group) RenewSession(c objcache.ClientID) error {
	s := &g.sessions
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.mu.own[c]; !ok {
		return fenced(c)
	}
	s.mu.own[c] = time.Now()
	return nil
}

// CheckSession reports as Fenced that a session whose row would be here does not live.
func (g *Group) CheckSession(c objcache.ClientID) error {
	s := &g.sessions
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.mu.own[c]; !ok {
		return fenced(c)
	}
	return nil
}

// Lease is how long a session lives without being heard of.
func (g *Group) Lease() time.Duration { return g.cfg.Lease }

// Admitted reports whether a client's requests may run: true, false when its owner must be asked first, or Fenced.
func (g *Group) Admitted(c objcache.ClientID) (bool, error) {
	s := &g.sessions
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.ended[c] {
		return false, fenced(c)
	}
	_, own := s.mu.own[c]
	return own || s.mu.known[c], nil
}

// Admit notes that the owner of a client says that it lives. An answer from before its end comes too late.
func (g *Group) Admit(c objcache.ClientID) error {
	s := &g.sessions
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.ended[c] {
		return fenced(c)
	}
	s.mu.known[c] = true
	return nil
}

// SessionCount is how many sessions have their row here.
func (g *Group) SessionCount() int {
	g.sessions.mu.Lock()
	defer g.sessions.mu.Unlock()
	return len(g.sessions.mu.own) + len(g.sessions.mu.ending)
}

// hasEnded reports whether a client's ENDED row is there. Apply asks: what was evaluated before the row and comes behind it in the log is refused.
func (s *sessions) hasEnded(c objcache.ClientID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.ended[c]
}

// applied follows a row that an entry sets or deletes.
func (s *sessions) applied(r *record.Row) {
	c, ok := meta.ParseEndedKey(r.GetKey())
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Value == nil {
		delete(s.mu.ended, c)
		return
	}
	s.mu.ended[c] = true
	delete(s.mu.known, c)
}

// restoreEnded learns of the ENDED rows, before the log is replayed.
func (s *sessions) restoreEnded(r meta.Reader) error {
	lo, hi := meta.EndedBounds()
	return meta.Scan(r, lo, hi, func(k, _ []byte) (bool, error) {
		if c, ok := meta.ParseEndedKey(k); ok {
			s.mu.Lock()
			s.mu.ended[c] = true
			s.mu.Unlock()
		}
		return true, nil
	})
}

// restoreSessions gives every session whose row is here a whole lease, and goes on ending those that were being ended.
func (g *Group) restoreSessions() error {
	lo, hi := meta.SessionBounds()
	return meta.Scan(g.db, lo, hi, func(k, v []byte) (bool, error) {
		row := &record.Session{}
		if err := proto.Unmarshal(v, row); err != nil {
			return false, objcache.Errorf(objcache.Corrupt, "session: %w", err)
		}
		c, ok := meta.ParseSessionKey(k)
		if !ok {
			return false, objcache.Errorf(objcache.Corrupt, "key %x of a session", k)
		}
		g.sessions.mu.Lock()
		g.sessions.mu.own[c] = time.Now()
		g.sessions.mu.Unlock()
		if row.GetEnding() {
			g.beginEnd(c)
		}
		return true, nil
	})
}

// Alive reports whether a client is a session that this group has met and that has not ended.
func (g *Group) Alive(c objcache.ClientID) bool {
	ok, err := g.Admitted(c)
	return ok && err == nil
}
