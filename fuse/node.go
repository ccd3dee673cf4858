package fuse

import (
	"slices"
	"sync"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/fuse/cache"
)

// A node is what the kernel calls an inode: a handle of this mount for one inode of the cluster. A directory has one for ever. A regular file may have
// several at a time, each with its own way of opening: cached I/O, or passthrough to one backing file (the kernel does not mix them). st_ino is the same on all.
type node struct {
	id uint64
	in *inode

	// The rest is guarded by the table's lock.
	lookups uint64 // references the kernel holds
	cached  int    // opens through the page cache
	pass    int    // opens handed to the backing file
	backing int32  // its id, while pass > 0
	file    *cache.File
	pages   uint64 // version of the pages the kernel may hold, when hasPages
	sent    uint64 // version whose size the kernel was told last

	hasPages bool
	dropping int // requests to the kernel to drop pages under way
}

// inode is all nodes of one inode. Guarded by the table's lock, except what never changes.
type inode struct {
	ino     objcache.Ino
	target  string // of a symlink; never changes
	nodes   []*node
	current *node // the one that lookups answer
	dir     objcache.Ino
	name    string // where it was looked up last

	awaited time.Time // when a writer was last sent to look for another node
}

type nodeTable struct {
	mu    sync.Mutex
	byID  map[uint64]*node
	byIno map[objcache.Ino]*inode
	last  uint64
}

func newNodeTable(root objcache.Ino) *nodeTable {
	t := &nodeTable{byID: make(map[uint64]*node), byIno: make(map[objcache.Ino]*inode)}
	in := &inode{ino: root}
	n := t.freshLocked(in) // gets id 1, which the kernel calls the root
	n.lookups = 1
	in.current = n
	t.byIno[root] = in
	return t
}

func (t *nodeTable) freshLocked(in *inode) *node {
	t.last++
	n := &node{id: t.last, in: in}
	in.nodes = append(in.nodes, n)
	t.byID[n.id] = n
	return n
}

// get returns the node of an id. Stale: the kernel asks for what it has forgotten.
func (t *nodeTable) get(id uint64) (*node, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := t.byID[id]; n != nil {
		return n, nil
	}
	return nil, objcache.Errorf(objcache.Stale, "node %d", id)
}

// ref returns the node to answer for an inode found as name in dir, with one more reference of the kernel.
func (t *nodeTable) ref(a objcache.Attr, dir objcache.Ino, name string) *node {
	t.mu.Lock()
	defer t.mu.Unlock()
	in := t.byIno[a.Ino]
	if in == nil {
		in = &inode{ino: a.Ino, target: a.Target}
		t.byIno[a.Ino] = in
	}
	if in.current == nil {
		in.current = t.freshLocked(in)
	}
	in.dir, in.name = dir, name
	in.current.lookups++
	in.current.sent = a.Version
	return in.current
}

// forget takes references back; a node without any is gone.
func (t *nodeTable) forget(id, n uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	x := t.byID[id]
	if x == nil || id == 1 {
		return
	}
	x.lookups -= min(n, x.lookups)
	if x.lookups == 0 {
		t.reapLocked(x.in)
	}
}

// reapLocked drops the nodes of an inode that the kernel has forgotten. The one that lookups answer stays while the kernel knows another: when the
// kernel revalidates a name and finds another node, it forgets that node at once and looks the name up again.
func (t *nodeTable) reapLocked(in *inode) {
	known := slices.ContainsFunc(in.nodes, func(n *node) bool { return n.lookups > 0 })
	in.nodes = slices.DeleteFunc(in.nodes, func(n *node) bool {
		gone := n.lookups == 0 && (n != in.current || !known)
		if gone {
			delete(t.byID, n.id)
		}
		return gone
	})
	if !known {
		delete(t.byIno, in.ino)
	}
}

// place says where an inode was looked up last.
func (t *nodeTable) place(in *inode) (objcache.Ino, string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return in.dir, in.name
}

func (t *nodeTable) told(n *node, version uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n.sent = version
}

func (t *nodeTable) size() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.byID)
}
