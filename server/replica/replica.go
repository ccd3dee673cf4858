// Package replica is one member of one Raft group: a replicated log with its leader. It promises that an entry reported as
// committed is on disk, and that apply sees every committed entry once and in order after the last one the state machine says it
// holds. It does not know what entries mean. It is the only room that imports hashicorp/raft.
package replica

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/objcache/objcache"
	"github.com/objcache/objcache/failpoint"
)

// StateMachine is what the log drives. Apply and Applied are called by one goroutine at a time, Flush by another beside it.
type StateMachine interface {
	// Apply applies one committed entry and returns its result, which reaches the proposer. index grows, with gaps. An entry at or below
	// Applied was applied in an earlier life and must be ignored. data is the state machine's to keep.
	Apply(index, term uint64, data []byte) any
	// Applied is the index of the last entry that the state holds, durably or not.
	Applied() uint64
	// Flush makes the state durable up to what Applied was at the call, so that the log before it may be dropped.
	Flush() error
}

// Config says what to open. ID and Dir are required.
type Config struct {
	ID      string           // the member's stable name
	Group   objcache.GroupID // for logs
	Dir     string           // made if missing; belongs to this replica alone
	FS      vfs.FS           // nil is the operating system's
	Logger  *slog.Logger     // nil is slog.Default
	Fatal   func(error)      // called once, at the first failed write or fsync of the log: the process must stop, for a later fsync may lie
	Timeout time.Duration    // until a replica without a leader stands for election; 0 is 150 ms, for a group of one

	SegmentSize     int    // bytes of a log file; 0 is 16 MiB
	SnapshotEntries uint64 // entries after which the state is flushed and the log cut; 0 is 65,536
	SnapshotBytes   int64  // the same in bytes; 0 is 64 MiB
}

// MaxEntry is the largest entry Propose takes, in bytes: raft counts entries, not bytes, when it batches.
const MaxEntry = 4 << 20

func (c *Config) setDefaults() {
	def(&c.FS, vfs.Default)
	def(&c.Logger, slog.Default())
	def(&c.Timeout, 150*time.Millisecond)
	def(&c.SegmentSize, 16<<20)
	def(&c.SnapshotEntries, 64<<10)
	def(&c.SnapshotBytes, 64<<20)
}

// def sets *p to v when it is zero.
func def[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

// Replica is an open member. All methods may be called at the same time.
type Replica struct {
	cfg  Config
	sm   StateMachine
	raft *raft.Raft
	wal  *wal.WAL
	meta *metaStore
	stop *failStop

	barrier atomic.Uint64 // the last term in which a Barrier was applied here
	logged  atomic.Int64  // bytes stored since the last snapshot
	entries atomic.Uint64 // entries stored since then
	syncs   atomic.Uint64
	cut     chan struct{} // asks for a snapshot; capacity 1, more requests fold into one

	notify <-chan bool // raft's changes of leadership
	mu     struct {
		sync.Mutex
		changed chan struct{} // closed and replaced when leadership changes
		closing bool          // no request begins any more
	}
	requests sync.WaitGroup // under way in raft: it forgets to answer those that meet its shutdown
	done     chan struct{}
	wg       sync.WaitGroup
	closed   sync.Once
}

// Open opens or creates the replica in cfg.Dir. Damage in its files is Corrupt and names the file. Entries that the state machine has not applied are
// applied in the background once the replica leads; WaitLeader waits for that.
func Open(cfg Config, sm StateMachine) (*Replica, error) {
	cfg.setDefaults()
	if cfg.ID == "" || cfg.Dir == "" {
		return nil, objcache.Errorf(objcache.Invalid, "a replica needs an id and a directory")
	}
	r := &Replica{cfg: cfg, sm: sm, stop: &failStop{fatal: cfg.Fatal}, cut: make(chan struct{}, 1), done: make(chan struct{})}
	r.mu.changed = make(chan struct{})
	if err := makeDir(cfg.FS, cfg.Dir); err != nil {
		return nil, err
	}
	log, err := r.openLog()
	if err != nil {
		return nil, err
	}
	failpoint.Hit(failpoint.LogOpened)
	if err := r.openRaft(log); err != nil {
		return nil, errors.Join(err, r.wal.Close())
	}
	r.wg.Go(r.watch)
	r.wg.Go(r.cutLog)
	return r, nil
}

// makeDir makes dir, durably.
func makeDir(fsys vfs.FS, dir string) error {
	if err := fsys.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return syncDir(fsys, fsys.PathDir(dir))
}

func (r *Replica) openLog() (*logStore, error) {
	fsys, dir := r.cfg.FS, r.cfg.Dir
	meta, err := openMeta(fsys, dir, r.stop)
	if err != nil {
		return nil, err
	}
	r.meta = meta
	if err := recoverLog(fsys, dir, meta); err != nil {
		return nil, err
	}
	files := segment.NewFiler(dir, &walFS{fs: fsys, meta: meta, stop: r.stop, done: &r.syncs})
	r.wal, err = wal.Open(dir, wal.WithMetaStore(meta), wal.WithSegmentFiler(files), wal.WithSegmentSize(r.cfg.SegmentSize),
		wal.WithLogger(bridge(r.cfg.Logger)))
	if err != nil {
		return nil, objcache.Errorf(objcache.Corrupt, "raft log %s: %w", dir, err)
	}
	return &logStore{LogStore: r.wal, stop: r.stop, stored: r.stored}, nil
}

func (r *Replica) openRaft(log *logStore) error {
	snaps := &snapshotStore{fs: r.cfg.FS, path: r.cfg.FS.PathJoin(r.cfg.Dir, snapshotName), stop: r.stop}
	if err := r.checkTogether(log, snaps); err != nil {
		return err
	}
	conf := r.raftConfig()
	addr, mem := raft.NewInmemTransport(raft.ServerAddress(r.cfg.ID))
	trans := transport{mem}
	last, err := log.LastIndex()
	if err != nil {
		return err
	}
	if mark, err := snaps.read(); err != nil {
		return err
	} else if last == 0 && mark.Raft.Index == 0 {
		// A crash between the term and the first entry left a half-made group, which raft would neither make nor elect a leader for.
		if err := r.meta.resetStable(); err != nil {
			return err
		}
		one := raft.Configuration{Servers: []raft.Server{{ID: conf.LocalID, Address: addr}}}
		if err := raft.BootstrapCluster(conf, log, r.wal, snaps, trans, one); err != nil {
			return err
		}
	}
	r.raft, err = raft.NewRaft(conf, fsm{r.sm}, log, r.wal, snaps, trans)
	return err
}

// checkTogether refuses a log, a marker and a state that cannot belong together: one of them lost acknowledged entries.
func (r *Replica) checkTogether(log raft.LogStore, snaps *snapshotStore) error {
	first, err := log.FirstIndex()
	if err != nil {
		return err
	}
	last, err := log.LastIndex()
	if err != nil {
		return err
	}
	mark, err := snaps.read()
	if err != nil {
		return err
	}
	applied := r.sm.Applied()
	switch {
	case first > mark.Raft.Index+1:
		return objcache.Errorf(objcache.Corrupt, "%s: the log begins at entry %d, the marker is at %d", snaps.path, first, mark.Raft.Index)
	case applied < mark.Applied:
		return objcache.Errorf(objcache.Corrupt, "%s: the state was durable up to entry %d and now ends at %d", snaps.path, mark.Applied, applied)
	case applied > max(last, mark.Raft.Index):
		return objcache.Errorf(objcache.Corrupt, "raft log %s ends at entry %d, the state at %d", r.cfg.Dir, last, applied)
	}
	return nil
}

func (r *Replica) raftConfig() *raft.Config {
	notify := make(chan bool, 8)
	r.notify = notify
	c := raft.DefaultConfig()
	c.LocalID = raft.ServerID(r.cfg.ID)
	c.Logger = bridge(r.cfg.Logger.With("group", uint32(r.cfg.Group)))
	c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout = r.cfg.Timeout, r.cfg.Timeout, r.cfg.Timeout
	c.CommitTimeout = min(200*time.Millisecond, r.cfg.Timeout)
	c.NoSnapshotRestoreOnStart = true
	c.SnapshotInterval, c.SnapshotThreshold = 24*time.Hour, 1<<62 // cutLog decides, by entries and bytes
	c.TrailingLogs = 128
	c.MaxAppendEntries = 256
	c.NotifyCh = notify
	return c
}

// stored counts what went into the log and asks for a cut when it is enough.
func (r *Replica) stored(entries, bytes int) {
	n, b := r.entries.Add(uint64(entries)), r.logged.Add(int64(bytes))
	if n < r.cfg.SnapshotEntries && b < r.cfg.SnapshotBytes {
		return
	}
	select {
	case r.cut <- struct{}{}:
	default:
	}
}

// cutLog flushes the state and drops the log before it, whenever there is enough of it.
func (r *Replica) cutLog() {
	for {
		select {
		case <-r.done:
			return
		case <-r.cut:
		}
		r.entries.Store(0)
		r.logged.Store(0)
		err := r.raft.Snapshot().Error()
		if err != nil && !errors.Is(err, raft.ErrNothingNewToSnapshot) && !errors.Is(err, raft.ErrRaftShutdown) {
			r.cfg.Logger.Error("cutting the raft log failed", "group", uint32(r.cfg.Group), "err", err)
		}
	}
}

// Close lets requests under way end, refuses new ones and stops the replica. The state machine is not called any more on return.
func (r *Replica) Close() error {
	var err error
	r.closed.Do(func() {
		r.mu.Lock()
		r.mu.closing = true
		r.mu.Unlock()
		r.requests.Wait()
		err = r.raft.Shutdown().Error()
		close(r.done)
		r.wg.Wait()
		err = errors.Join(err, r.wal.Close())
	})
	return err
}

// Syncs is how many fdatasyncs of the log were made since Open.
func (r *Replica) Syncs() uint64 { return r.syncs.Load() }
