package bubble

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/client"
	"github.com/objcache/objcache/server/external/memstore"
)

// Result is what came of a run.
type Result struct {
	Err       error // the first thing that was wrong
	Faults    *Faults
	Journal   *journal
	Simulated time.Duration
}

// run is one run under way.
type run struct {
	set     Settings
	res     *Result
	log     *journal
	logger  *slog.Logger
	bucket  *memstore.Store
	chaos   *chaos
	c       *cluster
	clients []*client.Client
	names   []string // hosts of clients
	players []*player
	sharers []*sharer
	lockers []*locker
	locks   *locks
	history *history
	stop    chan struct{} // closed at the first failure
	mu      sync.Mutex
}

// Run runs one seed in a bubble of its own.
func Run(t *testing.T, set Settings, level slog.Level, echo *journal) *Result {
	res := &Result{Faults: &Faults{}, Journal: echo}
	// Libraries keep objects with channels in pools, and a bubble must not meet another's channels: two collections empty every pool.
	runtime.GC()
	runtime.GC()
	r := &run{set: set, res: res, log: echo, logger: echo.logger(level), history: newHistory((set.Sharers + set.Lockers + 1) * set.Rounds * (set.Steps + 20))}
	synctest.Test(t, func(*testing.T) {
		r.stop = make(chan struct{})
		began := time.Now()
		r.all()
		res.Simulated = time.Since(began)
	})
	if r.history != nil {
		// Outside of the bubble: the search takes real time.
		if err := check(r.history.all()); err != nil && res.Err == nil {
			res.Err = err
		}
	}
	return res
}

// fail keeps the first failure.
func (r *run) fail(err error) {
	r.log.note("FAILED: %v", err)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.res.Err == nil {
		r.res.Err = err
		close(r.stop)
	}
}

func (r *run) failed() bool {
	select {
	case <-r.stop:
		return true
	default:
		return false
	}
}

func (r *run) all() {
	r.chaos = newChaos(r.set.Seed, r.set.Chaos, r.set.Late, r.res.Faults)
	r.bucket = memstore.New(memstore.Config{})
	r.chaos.inject(r.bucket)
	c, err := newCluster(r.set, 1, r.bucket, r.chaos, r.res.Faults, r.logger, r.fail)
	if err != nil {
		r.fail(err)
		return
	}
	r.c = c
	r.begin()
	for round := 0; round < r.set.Rounds && !r.failed(); round++ {
		r.round(round)
	}
	var before map[string]seen
	if !r.failed() {
		before = r.quiet()
	}
	r.leave()
	c.stop()
	if !r.failed() {
		if err := r.judge(); err != nil {
			r.fail(err)
		}
		r.again(before)
	}
}

// begin opens the sessions and makes the subtrees.
func (r *run) begin() {
	for i := range r.set.Players + r.set.Sharers {
		name := fmt.Sprintf("c%d", i)
		cl, err := r.c.client(name)
		if err != nil {
			r.fail(err)
			return
		}
		r.clients, r.names = append(r.clients, cl), append(r.names, name)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	top, err := r.clients[0].Lookup(ctx, objcache.RootIno, bucketDir)
	if err != nil {
		r.fail(err)
		return
	}
	for i := range r.set.Players {
		r.beginPlayer(ctx, top.Ino, i)
	}
	if err := r.beginShared(ctx, top.Ino); err != nil {
		r.fail(err)
	}
}

func (r *run) beginPlayer(ctx context.Context, top objcache.Ino, i int) {
	name := fmt.Sprintf("p%d", i)
	a, err := r.clients[i].Create(ctx, top, name, objcache.NewNode{Mode: objcache.ModeDir | 0o755})
	if err != nil {
		r.fail(err)
		return
	}
	others := slices.DeleteFunc(slices.Clone(r.clients), func(c *client.Client) bool { return c == r.clients[i] })
	r.players = append(r.players, &player{
		set: r.set, name: name, c: r.clients[i], others: others, rng: rand.New(rand.NewPCG(r.set.Seed, uint64(i)+100)),
		root: &inode{ino: a.Ino, dir: map[string]*inode{}, mode: 0o755}, log: r.log, fail: r.fail,
	})
}

// beginShared makes what is not of one player alone, and those who work on it.
func (r *run) beginShared(ctx context.Context, top objcache.Ino) error {
	if r.set.Sharers+r.set.Lockers == 0 {
		return nil
	}
	dir, err := r.clients[0].Create(ctx, top, sharedDir, objcache.NewNode{Mode: objcache.ModeDir | 0o755})
	if err != nil {
		return err
	}
	on, err := r.beginSharers(ctx, dir.Ino)
	if err != nil {
		return err
	}
	return r.beginLockers(ctx, dir.Ino, on.registers[0])
}

func (r *run) beginLockers(ctx context.Context, dir, spoil objcache.Ino) error {
	var inos []objcache.Ino
	for i := range 2 {
		a, err := r.clients[0].Create(ctx, dir, fmt.Sprintf("l%d", i), objcache.NewNode{Mode: objcache.ModeRegular | 0o600})
		if err != nil {
			return err
		}
		inos = append(inos, a.Ino)
	}
	r.locks = newLocks(r.history, spoil, inos)
	for i := range r.set.Lockers {
		k := &locker{id: i, of: r.c, on: r.locks, rng: rand.New(rand.NewPCG(r.set.Seed, uint64(i)+300)), log: r.log, fail: r.fail, set: r.set}
		if err := k.begin(); err != nil {
			return err
		}
		r.lockers = append(r.lockers, k)
	}
	return nil
}

func (r *run) beginSharers(ctx context.Context, dir objcache.Ino) (shared, error) {
	c := r.clients[0]
	var on shared
	for i := range 2 {
		for _, x := range []struct {
			name string
			mode uint32
			to   *[]objcache.Ino
		}{{"r", objcache.ModeRegular, &on.registers}, {"a", objcache.ModeRegular, &on.logs}, {"d", objcache.ModeDir, &on.dirs}} {
			a, err := c.Create(ctx, dir, fmt.Sprintf("%s%d", x.name, i), objcache.NewNode{Mode: x.mode | 0o755})
			if err != nil {
				return on, err
			}
			*x.to = append(*x.to, a.Ino)
		}
	}
	for i := range r.set.Sharers {
		r.sharers = append(r.sharers, &sharer{
			id: i, c: r.clients[r.set.Players+i], rng: rand.New(rand.NewPCG(r.set.Seed, uint64(i)+200)), on: on, h: r.history, log: r.log, fail: r.fail, set: r.set,
		})
	}
	return on, nil
}

// round lets everybody work while things break, and compares when they are whole again.
func (r *run) round(n int) {
	r.log.note("round %d", n)
	s := &storm{c: r.c, rng: rand.New(rand.NewPCG(r.set.Seed, uint64(n)+1000)), stop: make(chan struct{}), fail: r.fail, clients: r.names}
	var weather, work sync.WaitGroup
	if !r.set.Calm {
		r.chaos.on.Store(true)
		weather.Go(s.run)
	}
	for _, p := range r.players {
		work.Go(func() { p.play(r.set.Steps, r.stop) })
	}
	for _, p := range r.sharers {
		work.Go(func() { p.play(r.set.Steps, r.stop) })
	}
	for _, k := range r.lockers {
		work.Go(func() { k.play(1+r.set.Steps/3, r.stop) })
		r.names = append(r.names, k.host)
	}
	work.Wait()
	close(s.stop)
	weather.Wait()
	r.chaos.on.Store(false)
	r.log.note("round %d is over", n)
	for _, p := range r.players {
		if !r.failed() {
			p.checkAll()
		}
	}
	if len(r.sharers) > 0 && !r.failed() {
		r.sharers[0].look()
	}
	if r.locks != nil {
		if err := r.locks.check(); err != nil {
			r.fail(err)
		}
	}
}

// settling is how long a cluster without work and faults may take until everything is in the bucket.
const settling = 5 * time.Minute

// resting is how long participants take to hear of a decision when nothing is broken.
const resting = 5 * time.Second

// quiet waits until nothing is owed and returns what the cluster shows then.
func (r *run) quiet() map[string]seen {
	for _, p := range r.players {
		p.releaseAll()
	}
	ctx, cancel := context.WithTimeout(context.Background(), settling)
	defer cancel()
	for {
		left, err := r.owed(ctx)
		if err == nil && left == "" {
			break
		}
		r.log.note("owed: %s %v", left, err)
		if ctx.Err() != nil {
			r.fail(fmt.Errorf("after %v without faults this is still owed: %s: %w", settling, left, errors.Join(err, ctx.Err())))
			return nil
		}
		time.Sleep(10 * time.Second)
	}
	before := map[string]seen{}
	if err := r.show(before); err != nil {
		r.fail(err)
		return nil
	}
	for _, p := range r.players {
		if !r.failed() {
			p.checkAll()
		}
	}
	r.compareBucket()
	time.Sleep(resting) // looking may have merged listings: their transactions end, too
	return before
}

// owed flushes everything and says what servers still owe the bucket.
func (r *run) owed(ctx context.Context) (string, error) {
	var last *rpc.Progress
	if err := r.clients[0].Work(ctx, rpc.WorkRequest_FLUSH, 0, func(p *rpc.Progress) { last = p }); err != nil {
		return "", err
	}
	var left []string
	for _, p := range last.GetProblems() {
		left = append(left, p.GetPath()+": "+p.GetError())
	}
	for _, n := range r.c.nodes {
		l := n.alive()
		if l == nil {
			return "", fmt.Errorf("server %d is down", n.i)
		}
		s, err := l.srv.Status(ctx)
		if err != nil {
			return "", err
		}
		if s.GetFileLocks() > 0 || s.GetLockWaiters() > 0 {
			left = append(left, fmt.Sprintf("server %d: %d file locks that nobody alive has, %d waiters", n.i, s.GetFileLocks(), s.GetLockWaiters()))
		}
		if s.GetDirtyFiles() > 0 || s.GetOutstandingWrites() > 0 {
			left = append(left, fmt.Sprintf("server %d: %d inodes owe, %d writes outstanding", n.i, s.GetDirtyFiles(), s.GetOutstandingWrites()))
		}
	}
	return strings.Join(left, "; "), nil
}

func (r *run) show(out map[string]seen) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	top, err := r.clients[0].Lookup(ctx, objcache.RootIno, bucketDir)
	if err != nil {
		return err
	}
	return show(ctx, r.clients[0], top.Ino, "", out)
}

// compareBucket wants exactly the objects that the models make.
func (r *run) compareBucket() {
	have := r.bucket.Objects()
	for k := range have {
		if strings.HasPrefix(k, ".objcache/") {
			delete(have, k)
		}
	}
	want := map[string][]byte{}
	for _, p := range r.players {
		maps.Copy(want, objects(p.root, p.name))
	}
	for k, b := range want {
		if got, ok := have[k]; !ok {
			r.fail(fmt.Errorf("object %q is missing from the bucket", k))
		} else if !bytes.Equal(got, b) {
			r.fail(fmt.Errorf("object %q of %d bytes differs from the file of %d", k, len(got), len(b)))
		}
	}
	for _, k := range slices.Sorted(maps.Keys(have)) {
		if _, ok := want[k]; !ok && !strings.HasPrefix(k, sharedDir+"/") {
			r.fail(fmt.Errorf("the bucket holds %q, which no file is", k))
		}
	}
}

// leave ends the sessions.
func (r *run) leave() {
	for _, k := range r.lockers {
		r.clients = append(r.clients, k.c)
	}
	r.lockers = nil
	for _, c := range r.clients {
		if err := c.Close(); err != nil {
			r.log.note("a session's end: %v", err)
		}
	}
	r.clients = nil
}

// again starts a cluster with empty disks on the same bucket: it must show the same.
func (r *run) again(before map[string]seen) {
	r.log.note("a fresh cluster on the same bucket")
	set := r.set
	set.Servers = 1 + int(r.set.Seed%3)
	c, err := newCluster(set, 2, r.bucket, r.chaos, r.res.Faults, r.logger, r.fail)
	if err != nil {
		r.fail(err)
		return
	}
	defer c.stop()
	cl, err := c.client("c0")
	if err != nil {
		r.fail(err)
		return
	}
	r.clients = []*client.Client{cl}
	defer r.leave()
	after := map[string]seen{}
	if err := r.show(after); err != nil {
		r.fail(fmt.Errorf("after a reload: %w", err))
		return
	}
	r.compare(before, after)
}

func (r *run) compare(before, after map[string]seen) {
	for _, k := range slices.Sorted(maps.Keys(before)) {
		a, ok := after[k]
		if !ok {
			r.fail(fmt.Errorf("%q is gone after a reload", k))
			continue
		}
		b := before[k]
		if b.Body != a.Body {
			r.fail(fmt.Errorf("the bytes of %q differ after a reload", k))
		}
		if b.Body, a.Body = "", ""; b.Type == objcache.ModeDir {
			b.Mtime, a.Mtime = 0, 0
		}
		if a != b {
			r.fail(fmt.Errorf("%q was %+v and is %+v after a reload", k, b, a))
		}
	}
	for _, k := range slices.Sorted(maps.Keys(after)) {
		if _, ok := before[k]; !ok {
			r.fail(fmt.Errorf("%q is there after a reload, and was not before", k))
		}
	}
}

// sharedDir is where the sharers work.
const sharedDir = "shared"
