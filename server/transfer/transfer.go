// Package transfer moves names and bytes between a group and external storage: it lists directories, fetches clean bytes and persists
// what is dirty. It promises that a reader gets the bytes of the version it asked for or an error, never zeros for bytes that are
// missing, and that an object is written whole or not at all and never over another file's only copy. It does not know FUSE, nor
// how a transaction commits.
package transfer

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/external"
	"github.com/objcache/objcache/server/group"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
	"github.com/objcache/objcache/server/ring"
)

// Clean keeps bytes that are the same in external storage and may go at any time; package chunk implements it.
type Clean interface {
	ReadClean(k objcache.ChunkKey, tag string, off int64, p []byte) (bool, error)
	Fill(k objcache.ChunkKey, tag string, off int64, p []byte) error
}

// Peers asks the owner of a place on the ring, or tells a group once.
type Peers interface {
	Call(ctx context.Context, hash uint64, r *rpc.Request) (*rpc.Reply, error)
	Tell(ctx context.Context, to objcache.GroupID, r *rpc.Request) error
}

// Config is what a group's transfers are made of.
type Config struct {
	Group  *group.Group
	Clean  Clean
	Peers  Peers
	Stores map[string]external.Store // by dirName
	View   func() *ring.View
	Logger *slog.Logger

	FlushInterval time.Duration      // a dirty file is in external storage after about this long; 60 s
	ExternalTTL   time.Duration      // how old names and ETags may be; 5 s
	Workers       int                // files persisted at the same time
	Prefix        string             // hidden prefix of directory tables; empty: none are written or read
	Overwrite     bool               // on a foreign change, overwrite instead of keeping both
	Foreign       map[string]Foreign // by dirName; a bucket that is not there is ForeignAuto
	Defaults      meta.Defaults
	Node          string      // names conflict copies
	Pressed       func() bool // whether dirty bytes should leave this server's disk soon; nil: never
}

// Transfer serves one group.
type Transfer struct {
	cfg     Config
	bases   bases
	flights flights
	loads   loads
	directs directs
	heads   chan struct{} // room for requests about user metadata
	persist persisting
	hurried atomic.Int64 // until when every dirty file is due at once, ns
	now     func() time.Time
	life    context.Context // of what outlives the call that began it; ends with Close
	stop    context.CancelFunc
	work    sync.WaitGroup
}

// New makes the transfers of a group; Run persists in the background; Close ends them.
func New(cfg Config) *Transfer {
	if cfg.Workers == 0 {
		cfg.Workers = 16
	}
	t := &Transfer{cfg: cfg, now: time.Now}
	t.life, t.stop = context.WithCancel(context.Background())
	t.bases.mu.known = map[baseKey]known{}
	t.flights.init()
	t.directs.init()
	t.heads = make(chan struct{}, headsAtOnce)
	t.loads.mu.running = map[objcache.Ino]*load{}
	t.loads.mu.skipped = map[objcache.Ino]time.Time{}
	t.persist.init(cfg.Workers)
	t.persist.started = t.now().UnixNano()
	return t
}

// Close ends listings and fetches under way and waits for them. The caller has ended Run and every other call.
func (t *Transfer) Close() {
	t.stop()
	t.work.Wait()
}

// background runs what outlives its caller and Close waits for.
func (t *Transfer) background(f func(ctx context.Context)) {
	t.work.Go(func() { f(t.life) })
}

func (t *Transfer) store(bucket string) (external.Store, error) {
	s, ok := t.cfg.Stores[bucket]
	if !ok {
		return nil, objcache.Errorf(objcache.IO, "no bucket is configured for %q", bucket)
	}
	return s, nil
}

// bases remembers the objects that chunks' clean bytes come from.
type bases struct {
	mu struct {
		sync.Mutex
		known map[baseKey]known
	}
}

// baseKey is what an object was the base of: an upload makes a chunk clean without changing the version, and then it has another base.
type baseKey struct {
	chunk   objcache.ChunkKey
	version uint64
	clean   bool
}

type known struct {
	bucket string
	base   *record.Base
}

const maxBases = 1 << 16
