package fuse

import (
	"testing"

	"github.com/objcache/objcache"
)

func TestNodes_AFreshNodeOutlivesTheForgetOfARevalidation(t *testing.T) {
	nodes := newNodeTable(objcache.RootIno)
	a := objcache.Attr{Ino: 77, Mode: objcache.ModeRegular}
	old := nodes.ref(a, objcache.RootIno, "f")
	nodes.mu.Lock()
	nodes.turnLocked(old.in, func(*node) bool { return false })
	nodes.mu.Unlock()
	fresh := nodes.ref(a, objcache.RootIno, "f")
	if fresh == old {
		t.Fatal("the lookup does not answer the fresh node")
	}
	nodes.forget(fresh.id, 1)
	if again := nodes.ref(a, objcache.RootIno, "f"); again != fresh {
		t.Errorf("the second lookup answers node %d, not the fresh %d", again.id, fresh.id)
	}
	nodes.forget(fresh.id, 1)
	nodes.forget(old.id, 1)
	if n := nodes.size(); n != 1 {
		t.Errorf("%d nodes are left besides the root", n-1)
	}
	if _, err := nodes.get(old.id); objcache.KindOf(err) != objcache.Stale {
		t.Errorf("a forgotten node: %v", err)
	}
}
