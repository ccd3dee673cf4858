package group

import (
	"testing"

	"github.com/objcache/objcache"
)

// Requests about opens come twice, late, or not at all; what counts is the order in which the client made them.
func TestOpens_RequestsThatComeTwiceOrLateChangeNothing(t *testing.T) {
	g := &Group{}
	g.opens.init()
	const c, ino = objcache.ClientID(5), objcache.Ino(7)
	nothing, seven := map[uint64]uint32{}, map[uint64]uint32{7: 1}
	for i, step := range []struct {
		what string
		do   func()
		open bool
	}{
		{"opened", func() { g.Opened(c, ino, 1) }, true},
		{"the same again: its answer was lost", func() { g.Opened(c, ino, 1) }, true},
		{"closed", func() { g.Closed(c, seven, 2) }, false},
		{"opened again", func() { g.Opened(c, ino, 3) }, true},
		{"the release of before comes again", func() { g.Closed(c, seven, 2) }, true},
		{"a renewal of before comes late", func() { g.Renew(c, nothing, 2) }, true},
		{"a renewal while it is open", func() { g.Renew(c, seven, 4) }, true},
		{"closed, which did not arrive; the next renewal says so", func() { g.Renew(c, nothing, 4) }, false},
		{"the open of before comes late", func() { g.Opened(c, ino, 3) }, true},
		{"and the renewal after that", func() { g.Renew(c, nothing, 4) }, false},
		{"after a restart a renewal tells", func() { g.Renew(c, seven, 6) }, true},
		{"the session ends", func() { g.opens.closeAll(c) }, false},
	} {
		if step.do(); g.opens.has(ino) != step.open {
			t.Errorf("%d, %s: open %t, should be %t", i, step.what, !step.open, step.open)
		}
	}
	if len(g.opens.mu.byIno)+len(g.opens.mu.byClient) > 0 {
		t.Errorf("left: %v %v", g.opens.mu.byIno, g.opens.mu.byClient)
	}
}
