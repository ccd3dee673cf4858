package group

import (
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/objcache/objcache"
)

// opens knows which sessions have which inodes open. It is kept in memory: sessions repeat what they have open when they renew, and
// after a restart nothing counts as closed before they have had the time to.
type opens struct {
	mu struct {
		sync.Mutex
		// By the latest open of each, which clients number: a request that comes twice, or after one that was sent later, changes nothing.
		byIno    map[objcache.Ino]map[objcache.ClientID]uint64
		byClient map[objcache.ClientID]map[objcache.Ino]bool
	}
}

func (o *opens) init() {
	o.mu.byIno = map[objcache.Ino]map[objcache.ClientID]uint64{}
	o.mu.byClient = map[objcache.ClientID]map[objcache.Ino]bool{}
}

func (o *opens) has(ino objcache.Ino) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.mu.byIno[ino]) > 0
}

// Opened notes an open of a session.
func (g *Group) Opened(c objcache.ClientID, ino objcache.Ino, number uint64) {
	g.opens.mu.Lock()
	defer g.opens.mu.Unlock()
	g.opens.openLocked(c, ino, number)
}

func (o *opens) openLocked(c objcache.ClientID, ino objcache.Ino, number uint64) {
	if o.mu.byIno[ino] == nil {
		o.mu.byIno[ino] = map[objcache.ClientID]uint64{}
	}
	if o.mu.byClient[c] == nil {
		o.mu.byClient[c] = map[objcache.Ino]bool{}
	}
	o.mu.byIno[ino][c], o.mu.byClient[c][ino] = max(o.mu.byIno[ino][c], number), true
}

// closeLocked ends the opens of a session that were numbered before.
func (o *opens) closeLocked(c objcache.ClientID, ino objcache.Ino, before uint64) {
	if o.mu.byIno[ino][c] >= before {
		return
	}
	if delete(o.mu.byIno[ino], c); len(o.mu.byIno[ino]) == 0 {
		delete(o.mu.byIno, ino)
	}
	if delete(o.mu.byClient[c], ino); len(o.mu.byClient[c]) == 0 {
		delete(o.mu.byClient, c)
	}
}

// Closed notes that a session has some inodes not open any more, as far as its opens before a number go.
func (g *Group) Closed(c objcache.ClientID, inos map[uint64]uint32, before uint64) {
	g.opens.mu.Lock()
	defer g.opens.mu.Unlock()
	for ino := range inos {
		g.opens.closeLocked(c, objcache.Ino(ino), before)
	}
}

// Renew hears of everything that a session has open in this group, by its opens before a number. What else it opened before that is over, whether its
// release arrived or not.
func (g *Group) Renew(c objcache.ClientID, all map[uint64]uint32, before uint64) {
	o := &g.opens
	o.mu.Lock()
	defer o.mu.Unlock()
	for ino := range o.mu.byClient[c] {
		if _, ok := all[uint64(ino)]; !ok {
			o.closeLocked(c, ino, before)
		}
	}
	for ino := range all {
		o.openLocked(c, objcache.Ino(ino), 0)
	}
}

// closeAll closes everything that a session has open.
func (o *opens) closeAll(c objcache.ClientID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for ino := range o.mu.byClient[c] {
		o.closeLocked(c, ino, math.MaxUint64)
	}
}

// CloseEnded closes what requests that were under way while their session ended have opened behind its back.
func (g *Group) CloseEnded() {
	g.opens.mu.Lock()
	clients := slices.Collect(maps.Keys(g.opens.mu.byClient))
	g.opens.mu.Unlock()
	for _, c := range clients {
		if g.sessions.hasEnded(c) {
			g.opens.closeAll(c)
		}
	}
}
