package bubble

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/objcache/objcache/server"
	"github.com/objcache/objcache/server/chunk"
	"github.com/objcache/objcache/server/client"
	"github.com/objcache/objcache/server/external/memstore"
	"github.com/objcache/objcache/server/replica"
)

// bucketDir is the one bucket's directory below the root.
const bucketDir = "b"

// Settings are those of one run, drawn from its seed.
type Settings struct {
	Seed          uint64
	Servers       int
	Players       int // clients with a subtree of their own
	Sharers       int // clients that work on the same names and files
	Lockers       int // clients that take file locks, and die
	Rounds, Steps int
	Chaos         int  // percent of requests to the bucket that suffer
	Late          bool // requests to the bucket may take effect after they were given up
	Large         bool // files of several chunks
	Full          bool // disks that are full for a while
	Calm          bool // no faults at all
	FlushInterval time.Duration
	ExternalTTL   time.Duration
	Upload        string
	Capacity      int64
}

// cluster is servers, a network and a bucket in this process, all of it inside one bubble.
type cluster struct {
	set    Settings
	epoch  uint64
	logger *slog.Logger
	faults *Faults
	net    *network
	bucket *memstore.Store
	chaos  *chaos
	nodes  []*node
	fail   func(error)    // told when a server does not come back
	watch  sync.WaitGroup // of servers that stop by themselves
}

// node is one server's place: its name, its disk, and the life it is living.
type node struct {
	c    *cluster
	i    int
	conf server.Config
	mu   struct {
		sync.Mutex
		rng   *rand.Rand
		life  *life // nil while it is down
		disk  *disk
		lives int
	}
}

// life is one start of a server, until its crash.
type life struct {
	srv  *server.Server
	disk *disk
	wire *wire
	dead chan struct{} // closed when it is over, or an armed crash struck
	once sync.Once
}

func host(i int) string { return fmt.Sprintf("s%d", i) }

func newCluster(set Settings, epoch uint64, bucket *memstore.Store, ch *chaos, f *Faults, l *slog.Logger, fail func(error)) (*cluster, error) {
	c := &cluster{set: set, epoch: epoch, logger: l, faults: f, net: newNetwork(set.Seed^epoch<<32, f), bucket: bucket, chaos: ch, fail: fail}
	var members []server.Member
	for i := range set.Servers {
		members = append(members, server.Member{Group: uint32(i + 1), Name: fmt.Sprintf("server-%d", i), Address: host(i)})
	}
	for i, m := range members {
		conf := server.Default()
		conf.Name, conf.Listen, conf.Members, conf.Epoch = m.Name, m.Address, members, epoch
		conf.Buckets = []server.Bucket{{DirName: bucketDir, BucketName: bucketDir}}
		conf.StateDir, conf.Cluster, conf.CapacityBytes, conf.MemoryBytes = stateDir, "bubble", set.Capacity, 64<<20
		conf.FlushInterval, conf.ExternalTTL, conf.Upload = server.Duration(set.FlushInterval), server.Duration(set.ExternalTTL), set.Upload
		n := &node{c: c, i: i, conf: conf}
		n.mu.rng = rand.New(rand.NewPCG(set.Seed, uint64(i)+epoch<<16))
		d, err := emptyDisk(n.mu.rng.Uint64(), f)
		if err != nil {
			return nil, err
		}
		n.mu.disk = d
		c.nodes = append(c.nodes, n)
	}
	// A server asks others only when somebody asks it, so that they may start one by one.
	for _, n := range c.nodes {
		if err := n.up(); err != nil {
			c.stop()
			return nil, err
		}
	}
	return c, nil
}

// up starts the server on what its disk holds.
func (n *node) up() error {
	n.mu.Lock()
	d := n.mu.disk
	n.mu.lives++
	n.mu.Unlock()
	n.c.net.join(host(n.i))
	l := &life{disk: d, wire: newWire(n.c.bucket, n.c.chaos, n.c.logger.With("server", n.i)), dead: make(chan struct{})}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	srv, err := server.Open(ctx, n.conf, n.c.logger, server.On(n.platform(l)))
	if err != nil {
		return fmt.Errorf("server %d does not start: %w", n.i, err)
	}
	l.srv = srv
	n.c.logger.Info("up", "server", n.i, "applied", srv.Applied())
	n.mu.Lock()
	n.mu.life = l
	n.mu.Unlock()
	n.c.watch.Go(func() { n.revive(l) })
	return nil
}

// revive starts a server again that has stopped because its disk failed, as soon as the disk works.
func (n *node) revive(l *life) {
	select {
	case <-l.dead:
		return
	case err := <-l.srv.Failed():
		if l.wire.cut.Load() {
			return // its listener, and that is as it should be
		}
		n.c.logger.Info("a server stops by itself", "server", n.i, "error", err)
	}
	n.c.faults.Add("server stopped by itself")
	for l.disk.isFull() {
		time.Sleep(100 * time.Millisecond)
	}
	if !n.crashLife(l, 100) {
		return // somebody else ends it, and starts it again
	}
	if err := n.up(); err != nil {
		n.c.fail(err)
	}
}

func (n *node) platform(l *life) server.Platform {
	fs := l.disk.fs()
	return server.Platform{
		Disk: fs, Chunks: l.disk.chunks, Free: l.disk.free,
		Lock:      func(path string) (io.Closer, error) { return l.disk.mem.Lock(path) },
		Listen:    func(address string) (net.Listener, error) { return n.c.net.listen(address) },
		Dial:      n.c.net.dialer(host(n.i)),
		OpenStore: func(context.Context, server.Bucket) (server.Store, error) { return l.wire, nil },
		Rows: func(o *pebble.Options) {
			o.MemTableSize, o.MaxOpenFiles = 64<<10, 64
		},
		Log:   func(c *replica.Config) { c.SegmentSize, c.SnapshotEntries, c.SnapshotBytes = 64<<10, 30, 256<<10 },
		Bytes: func(o *chunk.Options) { o.SegmentSize, o.Spares = 1<<20, 1 },
	}
}

// alive is the present life, nil while the server is down.
func (n *node) alive() *life {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.life
}

// cut makes everything the server does from now on invisible.
func (n *node) cut(l *life) {
	l.once.Do(func() {
		l.wire.sever()
		n.c.net.cut(host(n.i))
		close(l.dead)
	})
}

// crashLife ends a life as a loss of power does: percent of what is not synced stays. It is false when the life is over already, or being ended by
// somebody else.
func (n *node) crashLife(l *life, percent int) bool {
	n.mu.Lock()
	mine := l != nil && n.mu.life == l
	seed := n.mu.rng.Uint64()
	if mine {
		n.mu.life = nil
	}
	n.mu.Unlock()
	if !mine {
		return false
	}
	n.cut(l)
	image := l.disk.crash(percent)
	n.bury(l)
	n.mu.Lock()
	n.mu.disk = newDisk(image, seed, n.c.faults)
	n.mu.Unlock()
	return true
}

// bury stops the goroutines of a life that is over; they write to a disk that nobody will read.
func (n *node) bury(l *life) {
	l.disk.fill(nil)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if err := l.srv.Close(ctx); err != nil {
		n.c.logger.Debug("a dead server's end", "server", n.i, "error", err)
	}
}

// stop ends the server as an administrator does. It is false when the server is down already, or going down.
func (n *node) stop() (bool, error) {
	n.mu.Lock()
	l := n.mu.life
	n.mu.life = nil
	n.mu.Unlock()
	if l == nil {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	err := l.srv.Close(ctx)
	n.cut(l)
	n.mu.Lock()
	defer n.mu.Unlock()
	if image := l.disk.disarm(); image != nil { // it crashed while it was stopping
		n.mu.disk, err = newDisk(*image, n.mu.rng.Uint64(), n.c.faults), nil
	}
	return true, err
}

func (c *cluster) stop() {
	for _, n := range c.nodes {
		if _, err := n.stop(); err != nil {
			c.logger.Warn("a server's end", "server", n.i, "error", err)
		}
	}
	c.watch.Wait()
	c.chaos.late.Wait()
}

func (c *cluster) client(name string) (*client.Client, error) {
	var addresses []string
	for i := range c.nodes {
		addresses = append(addresses, host(i))
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return client.Open(ctx, client.Config{Servers: addresses, Dial: c.net.dialer(name), Logger: c.logger})
}
