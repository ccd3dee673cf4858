// Package group is one Raft group's share of the filesystem: rows (meta), bytes (chunk), locks and transactions (txn) behind one
// log. It promises that what it reports as committed is in the log, that reads see every commit they may know of, and that a
// request of a client takes effect once. It does not know how a call reached it, where other groups are, or external storage.
package group

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/failpoint"
	"github.com/objcache/objcache/server/chunk"
	"github.com/objcache/objcache/server/ring"
	"github.com/objcache/objcache/server/txn"
)

// Log is the group's replicated log; package replica implements it.
type Log interface {
	Propose(ctx context.Context, data []byte) (any, error)
	Term() uint64
	WaitLeader(ctx context.Context) error
	Read(ctx context.Context) error
	Close() error
}

// Bytes keeps the bytes of extents and of clean chunks; package chunk implements it.
type Bytes interface {
	Write(ctx context.Context, k objcache.ChunkKey, off int64, p []byte) (chunk.Place, error)
	Sync(ctx context.Context) error
	Read(ctx context.Context, k objcache.ChunkKey, pl chunk.Place, off int64, p []byte) error
	Retain(k objcache.ChunkKey, pl chunk.Place)
	Started() error
	Free(k objcache.ChunkKey, pl chunk.Place, index uint64)
	Durable(upTo uint64)
	Adopt(k objcache.ChunkKey, tag string, pieces []chunk.Piece, size int64) error
	DropClean(k objcache.ChunkKey)
	OnShort(settle func() error)
	Verify(ctx context.Context, k objcache.ChunkKey, pl chunk.Place, pace chunk.Pace) error
}

// Peers carries what groups say to each other.
type Peers interface {
	Prepare(ctx context.Context, g objcache.GroupID, r *rpc.PrepareRequest) (*rpc.PrepareReply, error)
	Decide(ctx context.Context, g objcache.GroupID, r *rpc.DecideRequest) (*rpc.DecideReply, error)
	Query(ctx context.Context, g objcache.GroupID, r *rpc.QueryRequest) (*rpc.QueryReply, error)
}

// Config is what a group is made of.
type Config struct {
	ID     objcache.GroupID
	DB     *pebble.DB // its WAL is off; the group owns it from Open on
	Bytes  Bytes
	Peers  Peers
	View   func() *ring.View
	Logger *slog.Logger
	// OpenLog starts the log with the group as its state machine. Called once, by Open.
	OpenLog func(*Group) (Log, error)
	// Changed hears which rows an applied entry has changed; nil: nobody does.
	Changed func(index uint64, keys [][]byte)
	// Rebuilt says that the rows are a mirror's, after a loss of the disk; nil: they are the group's own.
	Rebuilt *Rebuilt
	// KeepFinished is how many decided transactions of a coordinator are remembered beyond what the protocol needs, for a coordinator that loses its disk
	// together with decisions that its neighbour had no copy of yet. Default 65,536; negative: none.
	KeepFinished int64
	// Fence tells a group of the end of a session; nil: this is the only group.
	Fence func(ctx context.Context, to objcache.GroupID, r *rpc.EndSessionRequest) error
	// Lease is how long a session lives without being heard of. Default 30 s.
	Lease time.Duration
	// Grace is for how long after a start every inode counts as open, until sessions have told what they have open. Default: Lease.
	Grace time.Duration
}

// Group is one group. Its methods are safe for concurrent use.
type Group struct {
	cfg         Config
	id          objcache.GroupID
	incarnation string
	db          *pebble.DB
	log         Log
	locks       *txn.Locks
	applied     atomic.Uint64
	live        atomic.Bool // the chunk store has started
	started     time.Time
	numbers     numbers
	staged      stage
	opens       opens
	damages     damages
	once        once
	fileLocks   fileLocks
	sessions    sessions
	readers     [64]sync.RWMutex // readers of extents against their being freed, by inode
	frees       chan freeing
	rebuilt     *Rebuilt
	comparing   atomic.Bool          // with other groups, after the loss of the disk
	view        objcache.ViewVersion // under which evaluations count; of apply alone
	logger      *slog.Logger
	ctx         context.Context // of the group's life; ends with Close
	stop        context.CancelFunc
	counts      counts
	work        *errgroup.Group

	mu struct {
		sync.Mutex
		counter  uint64                      // of TxSeq, since the start: its term is new
		pending  map[objcache.TxID]bool      // coordinated here with others and not decided
		prepared map[objcache.TxID]*prepared // from their Prepare until decided here
		listing  map[objcache.Ino]int
		ended    map[Ended]uint64
		closing  bool
	}
}

// Rows of this replica alone.
var (
	appliedRow     = []byte("La")
	incarnationRow = []byte("Li")
)

func placeRow(id uint64) []byte { return binary.BigEndian.AppendUint64([]byte("Lp"), id) }

// PlaceBounds are the bounds of the rows that say where the bytes of extents lie: "Lp", then the extent's number, 8 bytes big endian.
func PlaceBounds() (lower, upper []byte) { return []byte("Lp"), []byte("Lq") }

// Open brings a group up from its rows and its log. It returns when the group leads and every transaction it had promised has its locks
// back; in-doubt ones are settled in the background.
func Open(ctx context.Context, cfg Config) (*Group, error) {
	if cfg.Lease == 0 {
		cfg.Lease = 30 * time.Second
	}
	if cfg.Grace == 0 {
		cfg.Grace = cfg.Lease
	}
	if cfg.KeepFinished == 0 {
		cfg.KeepFinished = 1 << 16
	}
	ctx2, stop := context.WithCancel(context.Background())
	work, ctx2 := errgroup.WithContext(ctx2)
	g := &Group{
		cfg: cfg, id: cfg.ID, db: cfg.DB, rebuilt: cfg.Rebuilt, locks: txn.NewLocks(), started: time.Now(), frees: make(chan freeing, 4096),
		logger: cfg.Logger.With("group", cfg.ID), ctx: ctx2, stop: stop, work: work,
	}
	g.comparing.Store(cfg.Rebuilt != nil && !cfg.Rebuilt.row.GetCompared())
	g.mu.pending = map[objcache.TxID]bool{}
	g.mu.prepared = map[objcache.TxID]*prepared{}
	g.mu.listing = map[objcache.Ino]int{}
	g.mu.ended = map[Ended]uint64{}
	g.staged.init()
	g.opens.init()
	g.once.init()
	g.fileLocks.init(g.db)
	g.sessions.init()
	if err := g.openState(); err != nil {
		stop()
		return nil, errors.Join(err, g.db.Close())
	}
	work.Go(func() error { return g.free(ctx2) })
	log, err := cfg.OpenLog(g)
	if err != nil {
		stop()
		return nil, errors.Join(fmt.Errorf("group %d: open log: %w", cfg.ID, err), work.Wait(), g.db.Close())
	}
	g.log = log
	if err := g.recover(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("group %d: recover: %w", cfg.ID, err), g.Close())
	}
	failpoint.Hit(failpoint.RecoverDone)
	work.Go(func() error { return g.settleInDoubt(ctx2) })
	return g, nil
}

// openState reads what the rows say before the log is replayed.
func (g *Group) openState() error {
	v, c, err := g.db.Get(appliedRow)
	switch {
	case err == nil:
		g.applied.Store(binary.BigEndian.Uint64(v))
		if err := c.Close(); err != nil {
			return fmt.Errorf("read applied index: %w", err)
		}
	case !errors.Is(err, pebble.ErrNotFound):
		return fmt.Errorf("read applied index: %w", err)
	}
	if err := g.openView(); err != nil {
		return err
	}
	if err := g.sessions.restoreEnded(g.db); err != nil {
		return err
	}
	v, c, err = g.db.Get(incarnationRow)
	switch {
	case err == nil:
		g.incarnation = string(v)
		return c.Close()
	case !errors.Is(err, pebble.ErrNotFound):
		return fmt.Errorf("read incarnation: %w", err)
	}
	g.incarnation = uuid.NewString()
	if err := g.db.Set(incarnationRow, []byte(g.incarnation), pebble.NoSync); err != nil {
		return fmt.Errorf("write incarnation: %w", err)
	}
	return g.db.Flush() // the row has no log entry that could bring it back
}

// Close stops the group; its rows are flushed, so that the next start is quick.
func (g *Group) Close() error {
	g.mu.Lock()
	g.mu.closing = true
	g.mu.Unlock()
	g.stop()
	g.cfg.Bytes.OnShort(nil)
	var err error
	if g.log != nil {
		err = g.log.Close()
	}
	werr := g.work.Wait()
	if errors.Is(werr, context.Canceled) {
		werr = nil
	}
	return errors.Join(err, werr, g.db.Flush(), g.db.Close())
}

// spawn runs background work that Close waits for; after Close has begun it does nothing.
func (g *Group) spawn(f func() error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.mu.closing {
		g.work.Go(f)
	}
}

// ID is the group's number.
func (g *Group) ID() objcache.GroupID { return g.id }

// Incarnation names this life of the group, from empty disk to empty disk.
func (g *Group) Incarnation() string { return g.incarnation }

// DB reads the group's rows. Callers that must see every commit call Read first.
func (g *Group) DB() *pebble.DB { return g.db }

// Read waits until rows are as new as anything anybody may know of (linearizable read point).
func (g *Group) Read(ctx context.Context) error { return g.log.Read(ctx) }

// NewTx numbers a transaction of the group's own, for uploads.
func (g *Group) NewTx() (objcache.TxID, error) {
	return g.newTx(&rpc.Header{Client: uint64(g.PrivateClient()), Seq: 1}, false)
}

// Applied is the index of the last entry the rows hold.
func (g *Group) Applied() uint64 { return g.applied.Load() }

// Owns reports whether the group owns a place on the ring under the current view.
func (g *Group) Owns(hash uint64) bool { return g.cfg.View().Owner(hash) == g.id }

// WaitDecided waits until the outcome of every transaction that prepared this inode is known.
func (g *Group) WaitDecided(ctx context.Context, lock string) error {
	return g.locks.WaitDecided(ctx, lock)
}

// BeginListing notes that a listing of a directory is under way; call the result when its last page is merged.
func (g *Group) BeginListing(dir objcache.Ino) (end func()) {
	g.mu.Lock()
	g.mu.listing[dir]++
	g.mu.Unlock()
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.mu.listing[dir]--; g.mu.listing[dir] == 0 {
			delete(g.mu.listing, dir)
		}
	}
}
