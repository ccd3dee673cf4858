package fuse

import (
	"syscall"
	"testing"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/fuse/cache"
)

// A writer that could map a file beside readers of the backing file would store into that file itself: nothing would ever be committed. So he never opens
// such a node, whether he is known to come for the first time or not.
func TestAdmit_AWriterWhoMayMapNeverGetsTheBackingFile(t *testing.T) {
	store, _, err := cache.Open(cache.Config{Dir: t.TempDir(), Bytes: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	c := store.Create(77, 1, 10)
	defer store.Release(c)
	if err := c.Fill(1, 0, make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	fs := &FS{store: store, nodes: newNodeTable(objcache.RootIno)}
	fs.pass.on = true
	f := &content{fs: fs, ino: 77}
	f.mu.c = c
	lookup := func() *node {
		return fs.nodes.ref(objcache.Attr{Ino: 77, Mode: objcache.ModeRegular}, objcache.RootIno, "f")
	}
	open := func(n *node, flags uint32) way {
		return fs.admit(n, f, c, &handle{n: n, f: f, flags: flags}, false).way
	}
	n := lookup()
	n.pass, n.file, n.backing = 1, c, 1
	for _, more := range []uint32{0, syscall.O_APPEND} {
		if w := open(n, syscall.O_RDWR|more); w != wayRetry {
			t.Errorf("flags %#x: way %d", more, w)
		}
	}
	fresh := lookup()
	if fresh == n {
		t.Fatal("the next lookup answers the same node")
	}
	// A reader who comes in between does not make a node of the backing file of it.
	if w := open(fresh, syscall.O_RDONLY); w != wayCached {
		t.Errorf("a reader in between: way %d", w)
	}
	if w := open(lookup(), syscall.O_RDWR); w != wayCached {
		t.Errorf("the second attempt: way %d", w)
	}
	if w := open(n, syscall.O_WRONLY); w != wayBeside {
		t.Errorf("who cannot map what he writes: way %d", w)
	}
}
