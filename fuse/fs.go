// Package fuse is the kernel's side of a mount: it turns requests of Linux into calls of a Backend, with a node-local cache between.
// It promises close-to-open consistency (or strict, when configured), that an acknowledged write outlives its process, and errors at close and fsync.
// Locks are those of the cluster. It does not know servers, groups or S3.
package fuse

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/fuse/cache"
)

// Consistency says when other mounts see a write.
type Consistency string

// The two modes.
const (
	CloseToOpen Consistency = "close-to-open" // after close or fsync, at their next open
	Strict      Consistency = "strict"        // when write(2) returns, at their next read(2)
)

// Config is what a file system needs to know besides its backend and its cache.
type Config struct {
	Root        objcache.Ino // the directory shown at the mountpoint
	Consistency Consistency
	Passthrough bool          // try to hand complete files to the kernel
	EntryTTL    time.Duration // how long the kernel may trust names and attributes
	MemoryBytes int64         // budget of buffers in flight
	Node        string        // in the names of files set aside
}

// FS answers the kernel. Make it with New, serve it with go-fuse, end it with Close. Every method may be called at the same time.
//
// Locks, in this order, none held over the network: ranges of a content, content.mu, table.mu. The cache's own locks come last.
type FS struct {
	fuse.RawFileSystem
	cfg     Config
	backend Backend
	store   *cache.Store
	log     *slog.Logger

	nodes    *nodeTable
	contents contents
	handles  handleTable
	locks    *lockTable
	aside    asides
	dirs     dirTable
	retried  retries
	pass     passthrough
	inval    *invalidator
	fetches  *fetchSlots
	stages   chan struct{}
	removals removals

	ctx    context.Context // ends with the mount
	cancel context.CancelFunc
	work   sync.WaitGroup
	server atomic.Pointer[fuse.Server]
	count  counters
}

// New returns a file system over backend that caches in store. It starts no server.
func New(cfg Config, backend Backend, store *cache.Store, log *slog.Logger) *FS {
	ctx, cancel := context.WithCancel(context.Background())
	fs := &FS{
		RawFileSystem: fuse.NewDefaultRawFileSystem(), cfg: cfg, backend: backend, store: store, log: log,
		nodes: newNodeTable(cfg.Root), ctx: ctx, cancel: cancel, stages: make(chan struct{}, stagesInFlight),
	}
	fs.contents.byIno = make(map[objcache.Ino]*content)
	fs.handles.byID = make(map[uint64]*handle)
	fs.dirs.byID = make(map[uint64]*dirHandle)
	fs.retried.at = make(map[retryKey]time.Time)
	fs.fetches = newFetchSlots(cfg.MemoryBytes)
	fs.locks = newLockTable()
	fs.inval = newInvalidator(fs)
	fs.pass.init(cfg)
	backend.OnSessionLost(fs.sessionLost)
	return fs
}

// String names the file system in mount tables.
func (fs *FS) String() string { return "objcache" }

// Init is called by go-fuse before the first request.
func (fs *FS) Init(s *fuse.Server) {
	fs.server.Store(s)
	fs.pass.negotiated(s.KernelSettings().Flags64())
}

// Close flushes what is still pending, until ctx ends, and stops the background work. Call it when the kernel sends no more requests.
// What could not be flushed stays in the cache directory for the next process; the error says how much.
func (fs *FS) Close(ctx context.Context) error {
	err := fs.contents.drain(ctx)
	// Unmounting throws away RELEASEs that the kernel had not sent yet.
	for _, fh := range fs.handles.all() {
		fs.Release(nil, &fuse.ReleaseIn{Fh: fh})
	}
	fs.cancel()
	fs.inval.stop()
	fs.work.Wait()
	fs.contents.abandon()
	return err
}

// Kill ends the file system as a killed process would: nothing is flushed.
func (fs *FS) Kill() {
	fs.cancel()
	fs.inval.stop()
	fs.work.Wait()
	fs.contents.abandon()
}

// background runs f until it returns; Close waits for it.
func (fs *FS) background(f func()) {
	fs.work.Add(1)
	go func() {
		defer fs.work.Done()
		f()
	}()
}
