package fuse

import (
	"sync"

	"github.com/objcache/objcache"
)

// invalidator tells the kernel that pages are out of date. Only its one goroutine does so, with no lock held and after the new bytes and size are
// published: INVAL_INODE waits for reads in flight, which may wait for this process.
type invalidator struct {
	fs *FS

	mu   sync.Mutex
	due  map[objcache.Ino]uint64 // version that replaced the pages
	wake chan struct{}
	done chan struct{}
	quit chan struct{}
	once sync.Once
}

func newInvalidator(fs *FS) *invalidator {
	v := &invalidator{fs: fs, due: make(map[objcache.Ino]uint64), wake: make(chan struct{}, 1), done: make(chan struct{}), quit: make(chan struct{})}
	go v.run()
	return v
}

// changed asks for the pages and attributes of an inode to be dropped. It does not wait; inodes that are due already are not queued twice.
func (v *invalidator) changed(ino objcache.Ino, version uint64) {
	v.mu.Lock()
	v.due[ino] = version
	v.mu.Unlock()
	select {
	case v.wake <- struct{}{}:
	default:
	}
}

// attributes drops cached attributes of a node only, at once. That form of INVAL_INODE never blocks, so an open may call it.
func (v *invalidator) attributes(id uint64) {
	if s := v.fs.server.Load(); s != nil {
		s.InodeNotify(id, -1, 0)
	}
}

func (v *invalidator) run() {
	defer close(v.done)
	for {
		select {
		case <-v.quit:
			return
		case <-v.wake:
		}
		v.mu.Lock()
		due := v.due
		v.due = make(map[objcache.Ino]uint64)
		v.mu.Unlock()
		for ino, version := range due {
			v.drop(ino, version)
		}
	}
}

func (v *invalidator) drop(ino objcache.Ino, version uint64) {
	s := v.fs.server.Load()
	if s == nil {
		return
	}
	ids := v.fs.nodes.stalePages(ino, version)
	for _, id := range ids {
		s.InodeNotify(id, 0, 0)
		v.fs.count.invalidations.Add(1)
	}
	v.fs.nodes.dropped(ids)
}

// now drops all attributes of an inode, and the pages that may be of another version, before it returns. The caller is asked by no request that holds a
// lock of the kernel, and holds none that a read needs: it waits for reads in flight.
func (v *invalidator) now(ino objcache.Ino, version uint64) {
	s := v.fs.server.Load()
	if s == nil {
		return
	}
	stale, fresh := v.fs.nodes.stalePagesNow(ino, version)
	for _, id := range fresh {
		s.InodeNotify(id, -1, 0)
	}
	for _, id := range stale {
		s.InodeNotify(id, 0, 0)
		v.fs.count.invalidations.Add(1)
	}
	v.fs.nodes.dropped(stale)
}

// stalePages returns the nodes whose pages may be of another version and marks them as dropped.
func (t *nodeTable) stalePages(ino objcache.Ino, version uint64) []uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	in := t.byIno[ino]
	if in == nil {
		return nil
	}
	var ids []uint64
	for _, n := range in.nodes {
		if n.hasPages && n.pages != version {
			ids = append(ids, n.id)
			n.dropping++
			n.pages, n.hasPages = version, n.cached > 0
		}
	}
	return ids
}

// stalePagesNow is stalePages for one that cannot leave it to another to drop them; fresh are the other nodes.
func (t *nodeTable) stalePagesNow(ino objcache.Ino, version uint64) (stale, fresh []uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	in := t.byIno[ino]
	if in == nil {
		return nil, nil
	}
	for _, n := range in.nodes {
		if n.dropping > 0 || n.hasPages && n.pages != version {
			stale = append(stale, n.id)
			n.dropping++
			n.pages, n.hasPages = version, n.cached > 0
		} else {
			fresh = append(fresh, n.id)
		}
	}
	return stale, fresh
}

// wrotePast notes a write through n: pages of other nodes of the file do not have it. true: there are some, and they are to be dropped.
func (t *nodeTable) wrotePast(n *node) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	past := false
	for _, o := range n.in.nodes {
		if o != n && o.hasPages {
			o.pages, past = noVersion, true
		}
	}
	return past
}

// noVersion is of pages that are of no version: something is missing in them.
const noVersion = 1<<64 - 1

// dropped notes that the kernel has dropped the pages of nodes.
func (t *nodeTable) dropped(ids []uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, id := range ids {
		if n := t.byID[id]; n != nil {
			n.dropping--
		}
	}
}

// stop ends the worker. It does not wait for a notification that the kernel holds back: unmounting ends that.
func (v *invalidator) stop() { v.once.Do(func() { close(v.quit) }) }

// all drops the pages of an inode, of whatever version. It does not wait.
func (v *invalidator) all(ino objcache.Ino) {
	t := v.fs.nodes
	t.mu.Lock()
	if in := t.byIno[ino]; in != nil {
		for _, n := range in.nodes {
			n.pages, n.hasPages = 0, true
		}
	}
	t.mu.Unlock()
	v.changed(ino, 1<<63)
}

// misplaced drops the pages and the size of a node whose kernel put an append elsewhere than the cluster did.
func (v *invalidator) misplaced(n *node) {
	v.fs.nodes.mu.Lock()
	n.pages, n.hasPages = 0, true
	ino := n.in.ino
	v.fs.nodes.mu.Unlock()
	v.changed(ino, 1<<63)
}
