package cache

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/objcache/objcache"
)

// File holds one version of one file's bytes on this node, sparse, with what this node wrote on top of it. It may be used by many at the same time.
//
// Locks, in this order: io, mu, the disk's own. io is held over reads and writes of the local disk, never over the network.
type File struct {
	store *Store
	ino   objcache.Ino
	seq   uint64 // of the name INO-SEQ
	path  string
	disk  disk

	ownSidecar atomic.Bool // the sidecar is, or was, a file of its own

	// io is held shared while bytes are read and exclusively while they are changed, so that a reader sees a write whole or not at all
	// and a fill never overwrites a newer write.
	io sync.RWMutex

	mu struct {
		sync.Mutex
		version uint64 // of the committed bytes below what is dirty
		size    int64  // of the file as this node sees it
		blocks  blocks
		dirty   Ranges // written here, known to no owner
		staged  Ranges // written here, given to the owners, not committed
		grown   bool   // size was extended without writing: a flush is due
		mtime   time.Time
		changed time.Time // when it was written last, whatever utimensat(2) says
		side    *sidecar  // nil until the first write
		dir     objcache.Ino
		name    string
	}

	// Guarded by the store's lock.
	refs     int
	used     uint64 // the store's clock at the last use
	counted  int64  // bytes this file counts against the budget
	unlinked bool
}

// Ino is the inode whose bytes these are.
func (f *File) Ino() objcache.Ino { return f.ino }

// Fd is the descriptor for passthrough and stays valid while the file is referenced.
func (f *File) Fd() (int, error) {
	fd, err := f.disk.lend()
	if err != nil {
		return -1, diskError(err, "open %s", f.path)
	}
	return int(fd.Fd()), nil
}

// Version is the committed version below this node's own writes.
func (f *File) Version() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.version
}

// Size is the size in bytes, this node's writes included.
func (f *File) Size() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.size
}

// Complete reports whether every byte is here.
func (f *File) Complete() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.blocks.nPresent >= blockCount(f.mu.size)
}

// Present is the number of bytes that are here, in whole blocks.
func (f *File) Present() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.blocks.nPresent * BlockSize
}

// Missing returns, in whole blocks, the parts of r that must be fetched before it can be read.
func (f *File) Missing(r objcache.Range) Ranges {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.missingLocked(r)
}

func (f *File) missingLocked(r objcache.Range) Ranges {
	r = r.Intersect(objcache.Range{Len: f.mu.size})
	if r.Len == 0 {
		return nil
	}
	var out Ranges
	for i := r.Off / BlockSize; i < blockCount(r.End()); i++ {
		if f.mu.blocks.present.has(i) {
			continue
		}
		b := blockRange(i, f.mu.size)
		if !f.mu.dirty.Covers(b.Intersect(r)) && !f.uncommittedCovers(b.Intersect(r)) {
			out = out.Add(b)
		}
	}
	return out
}

func (f *File) uncommittedCovers(r objcache.Range) bool {
	at := r.Off
	for at < r.End() {
		rest := objcache.Range{Off: at, Len: r.End() - at}
		d, s := f.mu.dirty.Within(rest), f.mu.staged.Within(rest)
		next := at
		if len(d) > 0 && d[0].Off == at {
			next = d[0].End()
		}
		if len(s) > 0 && s[0].Off == at {
			next = max(next, s[0].End())
		}
		if next == at {
			return false
		}
		at = next
	}
	return true
}

// growLocked makes the file larger. Blocks wholly behind the old end hold zeros and are present.
func (f *File) growLocked(size int64) {
	old := f.mu.size
	if size <= old {
		return
	}
	for i := blockCount(old); i < blockCount(size); i++ {
		f.mu.blocks.setPresent(i)
		f.mu.blocks.known.clear(i)
	}
	if old%BlockSize != 0 {
		f.mu.blocks.known.clear(old / BlockSize)
	}
	f.mu.size = size
}
