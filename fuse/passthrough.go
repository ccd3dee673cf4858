package fuse

import (
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/fuse/cache"
)

// way is a way of opening.
type way int

const (
	wayCached way = iota
	wayDirect     // every read(2) and write(2) is a request; mixes with the others
	wayPass       // the kernel reads the backing file itself
	wayBeside     // as direct, on a node with passthrough opens: the kernel wants the backing file named there as well
	wayRetry      // ESTALE: the kernel looks the name up again and gets a node that fits
)

// decision is the answer to an open.
type decision struct {
	way     way
	flags   uint32
	backing int32
	resize  bool // the kernel was told another version's size before
}

// passthrough says whether the kernel may be given backing files, and why not.
type passthrough struct {
	mu  sync.Mutex
	on  bool
	why string
}

func (p *passthrough) init(cfg Config) {
	switch {
	case !cfg.Passthrough:
		p.why = "off: configured"
	case cfg.Consistency == Strict:
		p.why = "off: strict consistency reads through the servers"
	default:
		p.on, p.why = true, "on"
	}
}

func (p *passthrough) negotiated(kernel uint64) {
	if kernel&fuse.CAP_PASSTHROUGH == 0 {
		p.disable("off: the kernel has no FUSE passthrough (Linux 6.9 or newer has)")
	}
}

func (p *passthrough) disable(why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.on {
		p.on, p.why = false, why
	}
}

func (p *passthrough) state() (bool, string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.on, p.why
}

// writerComes is how long readers leave the pages to a writer who was sent to look for another node.
const writerComes = time.Second

// admit chooses the way of opening n. What the kernel does not mix on one node goes to different nodes; which one, it learns by ESTALE and another lookup.
func (fs *FS) admit(n *node, f *content, c *cache.File, h *handle, mayRetry bool) decision {
	direct := fs.cfg.Consistency == Strict || appends(h.flags)
	// Who only writes has no use for pages, and without them every byte is copied once less.
	pageless := h.flags&syscall.O_ACCMODE == syscall.O_WRONLY
	pass := !direct && !h.writable() && fs.mayPass(f, c)
	maps := h.flags&syscall.O_ACCMODE == syscall.O_RDWR // its stores through a mapping shall come to this process
	t := fs.nodes
	t.mu.Lock()
	defer t.mu.Unlock()
	pass = pass && time.Since(n.in.awaited) > writerComes
	mayRetry = mayRetry || maps && n.pass > 0
	d := decision{resize: n.sent != c.Version()}
	n.sent = c.Version()
	switch {
	case direct:
		d.way = t.directLocked(n, mayRetry)
	case pass:
		d.way = t.passLocked(fs, n, c, mayRetry)
	default:
		d.way = t.cachedLocked(n, mayRetry)
	}
	switch d.way {
	case wayRetry:
		if maps {
			n.in.awaited = time.Now()
		}
	case wayPass:
		n.pass++
		d.flags, d.backing = fuse.FOPEN_PASSTHROUGH, n.backing
	case wayCached: // a writer without pages has its place where the pages are: the kernel drops those it writes over
		n.cached++
		if n.hasPages && n.pages == c.Version() {
			d.flags |= fuse.FOPEN_KEEP_CACHE
		}
		n.pages, n.hasPages = c.Version(), true
		if pageless {
			d.flags |= fuse.FOPEN_DIRECT_IO | fuse.FOPEN_PARALLEL_DIRECT_WRITES
		}
	case wayDirect:
		d.flags = fuse.FOPEN_DIRECT_IO
	case wayBeside:
		n.pass++
		d.flags, d.backing = fuse.FOPEN_DIRECT_IO|fuse.FOPEN_PASSTHROUGH, n.backing
	}
	return d
}

// directLocked chooses for who must not use pages.
func (t *nodeTable) directLocked(n *node, mayRetry bool) way {
	switch {
	case n.pass == 0:
		return wayDirect
	case mayRetry:
		t.turnLocked(n.in, func(o *node) bool { return o.pass == 0 })
		return wayRetry
	}
	return wayBeside
}

// mayPass reports whether readers may be given the backing file: all of it is here and nobody on this node writes it. Nor does anybody lock it: a lock
// shows a reader what others have written since, and a backing file stays what it was.
func (fs *FS) mayPass(f *content, c *cache.File) bool {
	if on, _ := fs.pass.state(); !on {
		return false
	}
	f.mu.Lock()
	writers, locked := f.mu.writers, f.mu.locked
	f.mu.Unlock()
	return writers == 0 && !locked && c.Size() > 0 && c.Complete() && !c.Pending().Due()
}

// passLocked chooses for a reader of a complete file.
func (t *nodeTable) passLocked(fs *FS, n *node, c *cache.File, mayRetry bool) way {
	switch {
	case n.pass > 0 && n.file == c:
		return wayPass
	case n.pass == 0 && n.cached == 0:
		if t.registerLocked(fs, n, c) {
			return wayPass
		}
		return t.cachedLocked(n, mayRetry)
	case mayRetry:
		t.turnLocked(n.in, func(o *node) bool { return o.pass > 0 && o.file == c || o.pass == 0 && o.cached == 0 })
		return wayRetry
	case n.pass == 0:
		return wayCached
	}
	return wayBeside
}

// cachedLocked chooses for a writer, or a reader of a file that is not complete. Only one node of an inode has pages in use.
func (t *nodeTable) cachedLocked(n *node, mayRetry bool) way {
	elsewhere := false
	for _, o := range n.in.nodes {
		elsewhere = elsewhere || o != n && o.cached > 0
	}
	switch {
	case n.pass == 0 && !elsewhere:
		return wayCached
	case mayRetry:
		t.turnLocked(n.in, func(o *node) bool { return o.pass == 0 && (o.cached > 0 || !elsewhere) })
		return wayRetry
	}
	return t.directLocked(n, false)
}

// turnLocked makes a node that fits the one that lookups answer: an existing one, else a fresh one.
func (t *nodeTable) turnLocked(in *inode, fits func(*node) bool) {
	for _, o := range in.nodes {
		if fits(o) {
			in.current = o
			return
		}
	}
	in.current = t.freshLocked(in)
}

// registerLocked gives c to the kernel as n's backing file. The ioctl does not sleep. A failure turns passthrough off for good.
func (t *nodeTable) registerLocked(fs *FS, n *node, c *cache.File) bool {
	s := fs.server.Load()
	if s == nil {
		return false
	}
	fd, err := c.Fd()
	if err != nil {
		fs.log.Error("no passthrough for a file", "ino", n.in.ino, "err", err)
		return false
	}
	id, errno := s.RegisterBackingFd(&fuse.BackingMap{Fd: int32(fd)})
	if errno != 0 {
		fs.pass.disable(fmt.Sprintf("off: the kernel refused a backing file: %v", errno))
		return false
	}
	fs.store.Hold(c)
	n.backing, n.file = id, c
	return true
}

// leave undoes admit.
func (fs *FS) leave(h *handle) {
	t := fs.nodes
	t.mu.Lock()
	defer t.mu.Unlock()
	switch h.way {
	case wayCached:
		h.n.cached--
	case wayPass, wayBeside:
		h.n.pass--
		if h.n.pass == 0 {
			if s := fs.server.Load(); s != nil {
				if errno := s.UnregisterBackingFd(h.n.backing); errno != 0 {
					fs.log.Warn("backing file not unregistered", "node", h.n.id, "errno", int(errno))
				}
			}
			fs.store.Release(h.n.file)
			h.n.backing, h.n.file = 0, nil
		}
	}
}

// committed notes that what this node wrote on version from became version to: the kernel's pages are of that version now.
func (t *nodeTable) committed(ino objcache.Ino, from, to uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	in := t.byIno[ino]
	if in == nil {
		return
	}
	for _, n := range in.nodes {
		// Pages of a node without opens may be older than what another node wrote.
		if n.pages == from && n.cached > 0 {
			n.pages = to
		}
		if n.sent == from && n.cached > 0 {
			n.sent = to
		}
	}
}

// retries remembers who was answered ESTALE: the kernel tries once more, and a second ESTALE would reach the program. So a thread that comes
// again to the same file is served from whatever node it comes to.
type retries struct {
	mu sync.Mutex
	at map[retryKey]time.Time
}

type retryKey struct {
	pid uint32
	ino objcache.Ino
}

// retryMemory is how long an ESTALE may stay unanswered (the name can be gone at the second lookup) before it is forgotten.
const retryMemory = 10 * time.Second

// first reports whether this open may be answered ESTALE. A thread of another PID namespace (0) never is: it cannot be recognised.
func (r *retries) first(pid uint32, ino objcache.Ino) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, again := r.at[retryKey{pid, ino}]
	delete(r.at, retryKey{pid, ino})
	return !again && pid != 0
}

func (r *retries) remember(pid uint32, ino objcache.Ino) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if len(r.at) >= 1024 {
		for k, at := range r.at {
			if now.Sub(at) > retryMemory {
				delete(r.at, k)
			}
		}
	}
	r.at[retryKey{pid, ino}] = now
}
