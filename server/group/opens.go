package group

import (
	"sync"
	"time"

	"github.com/objcache/objcache"
)

// opens knows which sessions have which inodes open. It is kept in memory: sessions repeat what they have open when they renew, and
// after a restart nothing counts as closed before they have had the time to.
type opens struct {
	mu struct {
		sync.Mutex
		byIno    map[objcache.Ino]map[objcache.ClientID]uint32
		sessions map[objcache.ClientID]time.Time // last heard of
	}
}

func (o *opens) init() {
	o.mu.byIno = map[objcache.Ino]map[objcache.ClientID]uint32{}
	o.mu.sessions = map[objcache.ClientID]time.Time{}
}

func (o *opens) has(ino objcache.Ino) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.mu.byIno[ino]) > 0
}

// Opened counts one more open of a session.
func (g *Group) Opened(c objcache.ClientID, ino objcache.Ino) {
	o := &g.opens
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mu.byIno[ino] == nil {
		o.mu.byIno[ino] = map[objcache.ClientID]uint32{}
	}
	o.mu.byIno[ino][c]++
	o.mu.sessions[c] = time.Now()
}

// Closed counts n opens of a session less.
func (g *Group) Closed(c objcache.ClientID, ino objcache.Ino, n uint32) {
	o := &g.opens
	o.mu.Lock()
	defer o.mu.Unlock()
	by := o.mu.byIno[ino]
	if by[c] > n {
		by[c] -= n
		return
	}
	delete(by, c)
	if len(by) == 0 {
		delete(o.mu.byIno, ino)
	}
}

// Renew hears of a session; opens is all it has open in this group, by inode.
func (g *Group) Renew(c objcache.ClientID, all map[uint64]uint32) {
	o := &g.opens
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.sessions[c] = time.Now()
	for ino, n := range all {
		i := objcache.Ino(ino)
		if o.mu.byIno[i] == nil {
			o.mu.byIno[i] = map[objcache.ClientID]uint32{}
		}
		o.mu.byIno[i][c] = max(o.mu.byIno[i][c], n)
	}
}

// ExpireSessions closes everything that sessions have open of which nothing was heard since a time.
func (g *Group) ExpireSessions(before time.Time) {
	o := &g.opens
	o.mu.Lock()
	defer o.mu.Unlock()
	for c, last := range o.mu.sessions {
		if !last.Before(before) {
			continue
		}
		delete(o.mu.sessions, c)
		for ino, by := range o.mu.byIno {
			delete(by, c)
			if len(by) == 0 {
				delete(o.mu.byIno, ino)
			}
		}
	}
}

// Alive reports whether a session was heard of lately (since the last ExpireSessions).
func (g *Group) Alive(c objcache.ClientID) bool {
	g.opens.mu.Lock()
	defer g.opens.mu.Unlock()
	_, ok := g.opens.mu.sessions[c]
	return ok
}
