// Package fusetest is a cluster in memory for tests of a mount: inodes, versions, staged bytes that nobody sees before their flush.
// It promises what fuse.Backend asks of a real cluster, for any number of mounts, and fails where a test tells it to.
// It does not know the network or S3.
package fusetest

import (
	"context"
	"sync"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/fuse"
)

// Cluster is shared by the mounts of a test. It may be used by many at the same time.
type Cluster struct {
	mu     sync.Mutex
	inodes map[objcache.Ino]*inode
	last   objcache.Ino
	locks  fileLocks

	sessions uint64

	// Discard makes the cluster forget bytes (reads give zeros), for benchmarks. Set it before the first use.
	Discard       bool
	before, after Hook
	calls         map[string]int
}

// Hook is told of a call of a Backend, by the method's name, and may delay it or make it fail.
type Hook func(ctx context.Context, op string, ino objcache.Ino) error

// SetHook has h called before each call does anything; nil ends that.
func (c *Cluster) SetHook(h Hook) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.before = h
}

// SetAfter has h called when a Flush is committed and before its answer; an error is a lost answer. Nil ends that.
func (c *Cluster) SetAfter(h Hook) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.after = h
}

type inode struct {
	attr    objcache.Attr
	data    []byte
	xattrs  map[string][]byte
	names   map[string]*entry // of a directory
	cookie  uint64
	opens   int
	parents int
}

type entry struct {
	cookie uint64
	ino    objcache.Ino
}

// New returns a cluster with an empty root that everybody may write.
func New() *Cluster {
	c := &Cluster{locks: newFileLocks(), inodes: make(map[objcache.Ino]*inode), last: objcache.FirstFreeIno, calls: make(map[string]int)}
	now := time.Now()
	c.inodes[objcache.RootIno] = &inode{names: make(map[string]*entry), attr: objcache.Attr{
		Ino: objcache.RootIno, Mode: objcache.ModeDir | 0o777, Nlink: 2, Atime: now, Mtime: now, Ctime: now, Version: 1}}
	return c
}

// Backend returns the cluster as one mount sees it.
func (c *Cluster) Backend() *Backend {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sessions++
	return &Backend{c: c, id: c.sessions, session: 1, staged: make(map[objcache.Ino][]stagedBytes), opens: make(map[objcache.Ino]int)}
}

// Calls returns how often a method was called, over all mounts.
func (c *Cluster) Calls(op string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[op]
}

// Orphans counts inodes without a name: files that are unlinked and still open.
func (c *Cluster) Orphans() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for ino, i := range c.inodes {
		if ino != objcache.RootIno && i.parents == 0 {
			n++
		}
	}
	return n
}

// Content returns the committed bytes of a path below the root.
func (c *Cluster) Content(names ...string) ([]byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.inodes[objcache.RootIno]
	for _, n := range names {
		e := at.names[n]
		if e == nil {
			return nil, false
		}
		at = c.inodes[e.ino]
	}
	return append([]byte(nil), at.data...), true
}

// Backend is one mount's connection.
type Backend struct {
	c       *Cluster
	id      uint64 // of the present session, guarded by the cluster's lock like what follows
	session uint64 // 1, 2, ...
	lost    func()
	staged  map[objcache.Ino][]stagedBytes // guarded by the cluster's lock, like opens
	opens   map[objcache.Ino]int
}

var _ fuse.Backend = (*Backend)(nil)

// enter counts the call, runs the hook and locks the cluster.
func (b *Backend) enter(ctx context.Context, op string, ino objcache.Ino) error {
	b.c.mu.Lock()
	b.c.calls[op]++
	hook := b.c.before
	b.c.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if hook != nil {
		if err := hook(ctx, op, ino); err != nil {
			return err
		}
	}
	b.c.mu.Lock()
	return nil
}

func (c *Cluster) get(ino objcache.Ino) (*inode, error) {
	if i := c.inodes[ino]; i != nil {
		return i, nil
	}
	return nil, objcache.Errorf(objcache.Stale, "inode %d", ino)
}

func (c *Cluster) dir(ino objcache.Ino) (*inode, error) {
	i, err := c.get(ino)
	if err == nil && i.names == nil {
		err = objcache.Errorf(objcache.NotDir, "inode %d", ino)
	}
	return i, err
}

// touched sets mtime and ctime of a directory to now.
func (i *inode) touched() {
	i.attr.Mtime = time.Now()
	i.attr.Ctime = i.attr.Mtime
}

// Statfs is answered from memory.
func (b *Backend) Statfs(context.Context) (objcache.Statfs, error) {
	return objcache.Statfs{Capacity: 1 << 40, Free: 1 << 39, Inodes: uint64(len(b.c.inodes))}, nil
}

type stagedBytes struct {
	r objcache.Range
	p []byte
}
