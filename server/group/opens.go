package group

import (
	"sync"

	"github.com/objcache/objcache"
)

// opens knows which sessions have which inodes open. It is kept in memory: sessions repeat what they have open when they renew, and
// after a restart nothing counts as closed before they have had the time to.
type opens struct {
	mu struct {
		sync.Mutex
		byIno map[objcache.Ino]map[objcache.ClientID]uint32
	}
}

func (o *opens) init() {
	o.mu.byIno = map[objcache.Ino]map[objcache.ClientID]uint32{}
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
	for ino, n := range all {
		i := objcache.Ino(ino)
		if o.mu.byIno[i] == nil {
			o.mu.byIno[i] = map[objcache.ClientID]uint32{}
		}
		o.mu.byIno[i][c] = max(o.mu.byIno[i][c], n)
	}
}

// closeAll closes everything that a session has open.
func (o *opens) closeAll(c objcache.ClientID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for ino, by := range o.mu.byIno {
		delete(by, c)
		if len(by) == 0 {
			delete(o.mu.byIno, ino)
		}
	}
}

// CloseEnded closes what requests that were under way while their session ended have opened behind its back.
func (g *Group) CloseEnded() {
	gone := map[objcache.ClientID]bool{}
	g.opens.mu.Lock()
	for _, by := range g.opens.mu.byIno {
		for c := range by {
			gone[c] = true
		}
	}
	g.opens.mu.Unlock()
	for c := range gone {
		if g.sessions.hasEnded(c) {
			g.opens.closeAll(c)
		}
	}
}
