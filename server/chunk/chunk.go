// Package chunk holds the bytes of the groups of one server on local disk: dirty extents, which are never evicted, and clean
// bytes, which may be at any time. It promises that what Sync reported is on disk and that a byte which does not match its
// checksum is never handed out. It does not know which extents a version of a file consists of (that is meta's), nor any network.
package chunk

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/failpoint"
)

// Options says how to open a store. Budget is required.
type Options struct {
	Budget      *Budget      // shared by all stores of a server
	FS          FS           // nil is the operating system's
	Logger      *slog.Logger // nil is slog.Default
	Buffered    bool         // go through the page cache even where O_DIRECT works
	SegmentSize int64        // bytes of a second-level-log file; 0 is 256 MiB, or a sixteenth of a small capacity
	MaxOpen     int          // open files; 0 is 512
	Spares      int          // recycled segments kept for reuse; 0 is 2
}

// Store is the bytes of one group. All methods may be called at the same time; Retain and Started belong to the start.
type Store struct {
	dir     string
	fs      FS
	log     *slog.Logger
	opt     Options
	direct  bool
	budget  *Budget
	handles *handles

	mu    state
	ids   idState
	short shortState
	grow  chan struct{} // capacity 1: who fills it makes the next segment
	sync  syncState
	fatal atomic.Pointer[error] // the first failed fdatasync: nothing is acknowledged after it

	corrupt atomic.Int64 // clean blocks that did not match their checksum

	background context.CancelFunc
	wg         sync.WaitGroup
	tidy       chan struct{} // wakes the reclaimer; capacity 1
}

// state is what the store's lock guards. The lock is never held over I/O.
type state struct {
	sync.Mutex
	started bool
	files   map[uint64]*file
	dirty   map[objcache.ChunkKey]*file // the dirty file that takes in-place writes, if any
	clean   map[objcache.ChunkKey]*file
	active  *file   // the segment that is appended to
	spares  []*file // segments without a live byte
	durable uint64
	freed   []freed // frees that wait for their index to be durable
	dead    []*file // files and segments to be removed or recycled
	usage   Usage
}

// shortState is what settles metadata; the lock is held shared while it runs.
type shortState struct {
	sync.RWMutex
	f func() error
}

type idState struct {
	sync.Mutex
	next, reserved uint64
}

// Usage is what a store holds, in bytes.
type Usage struct {
	Dirty    int64 // live in dirty files
	Staged   int64 // live in segments
	Clean    int64 // droppable
	Segments int64 // size of all segment files, live or not
	Capacity int64 // of the whole server
}

// Open opens or creates the store in dir, which belongs to it alone. Clean files whose trailer verifies are usable at once;
// dirty ones wait for Retain and Started.
func Open(dir string, opt Options) (*Store, error) {
	if opt.Budget == nil {
		return nil, objcache.Errorf(objcache.Invalid, "a chunk store needs a budget")
	}
	opt.setDefaults()
	s := &Store{dir: dir, fs: opt.FS, log: opt.Logger, opt: opt, budget: opt.Budget, handles: newHandles(opt.FS, opt.MaxOpen), tidy: make(chan struct{}, 1),
		grow: make(chan struct{}, 1)}
	s.mu.files, s.mu.dirty, s.mu.clean = map[uint64]*file{}, map[objcache.ChunkKey]*file{}, map[objcache.ChunkKey]*file{}
	if err := s.fs.MkdirAll(dir); err != nil {
		return nil, diskError(err, "make", dir)
	}
	s.direct = !opt.Buffered && s.fs.Direct(dir)
	next, err := s.readNextID()
	if err != nil {
		return nil, err
	}
	s.ids.next, s.ids.reserved = next, next
	if err := s.load(); err != nil {
		return nil, errors.Join(err, s.handles.close())
	}
	failpoint.Hit(failpoint.ChunkLoaded)
	var ctx context.Context
	ctx, s.background = context.WithCancel(context.Background())
	s.sync.init()
	s.wg.Go(func() { s.syncLoop(ctx) })
	s.wg.Go(func() { s.reclaimLoop(ctx) })
	s.wg.Go(func() { s.evictLoop(ctx) })
	return s, nil
}

func (o *Options) setDefaults() {
	if o.FS == nil {
		o.FS = osFS{}
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.SegmentSize == 0 {
		o.SegmentSize = min(256<<20, max(1<<20, o.Budget.capacity/16))
	}
	o.SegmentSize = alignUp(o.SegmentSize, BlockSize)
	if o.MaxOpen == 0 {
		o.MaxOpen = 512
	}
	if o.Spares == 0 {
		o.Spares = 2
	}
}

// Usage counts the store's bytes.
func (s *Store) Usage() Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.mu.usage
	u.Capacity = s.budget.capacity
	return u
}

// CorruptClean is how many clean blocks were dropped because they did not match their checksum.
func (s *Store) CorruptClean() int64 { return s.corrupt.Load() }

// Close writes the trailers of the clean files, so that they are found again, and closes. No other call may be under way. Bytes that no Sync
// reported may be lost.
func (s *Store) Close() error {
	s.background()
	s.wg.Wait()
	s.saveTrailers()
	s.leaveBudget()
	return s.handles.close()
}

// broken returns the error of the first failed fdatasync.
func (s *Store) broken() error {
	if err := s.fatal.Load(); err != nil {
		return *err
	}
	return nil
}
