//go:build integration

package crash

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/objcache/objcache/failpoint"
)

const (
	tick    = 5 * time.Millisecond
	between = 40 // kills between two comparisons through an empty cache
)

// afterDeath are the points that are passed only soon after the death of a server, so that they are armed before a server says its first word.
var afterDeath = []string{"query.asking", "query.answered", "query.received", "s3.abort-upload.before", "s3.abort-upload.after",
	"s3.list-uploads.before", "s3.list-uploads.after"}

// seldom are the points that a server which lives on may not come to for hours: it stops at the others.
var seldom = append([]string{"chunk.numbers.before", "chunk.numbers.after"}, afterDeath...)

// walk has three servers under a workload reach every point. All that is left is armed in all of them: whichever comes first strikes.
type walk struct {
	c       *cluster
	victims []*victim
	ws      []*worker
	mu      struct {
		sync.Mutex
		rng                    *rand.Rand
		verb                   string          // kill or stop
		left                   map[string]bool // points nobody has reached
		round                  int             // strikes until the next comparison
		walked                 map[string]bool
		kills, stops, compared int
		lives                  map[string]int // of each server
		log                    []string
	}
}

func newWalk(c *cluster, ws []*worker, seed uint64) (*walk, error) {
	st, err := c.status()
	if err != nil {
		return nil, err
	}
	w := &walk{c: c, ws: ws}
	w.mu.rng, w.mu.walked, w.mu.lives = rand.New(rand.NewPCG(seed, 2000)), map[string]bool{}, map[string]int{}
	for _, s := range st.Servers {
		v, err := c.victim(st, s.Name)
		if err != nil {
			return nil, err
		}
		w.victims = append(w.victims, v)
	}
	return w, nil
}

func (w *walk) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.log = append(w.mu.log, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// through has each of the points reached by one of the servers at least, and compares now and then. It fails when time is over before.
func (w *walk) through(ctx context.Context, verb string, points []failpoint.Info, limit time.Duration) error {
	w.mu.verb, w.mu.left = verb, map[string]bool{}
	for _, p := range points {
		w.mu.left[p.Name] = true
	}
	end := time.Now().Add(limit)
	for len(w.mu.left) > 0 {
		if time.Now().After(end) {
			return fmt.Errorf("in %v the workload came to no %s", limit, slices.Sorted(maps.Keys(w.mu.left)))
		}
		w.mu.round = between
		rctx, cancel := context.WithDeadline(ctx, end)
		g, gctx := errgroup.WithContext(rctx)
		for _, v := range w.victims {
			g.Go(func() error { return w.lane(gctx, v) })
		}
		err := g.Wait()
		cancel()
		if err != nil && (ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded)) {
			return err
		}
		if err := w.compare(); err != nil {
			return err
		}
	}
	return nil
}

// lane strikes at one server until the round is over. The server runs then, and nothing is armed in it.
func (w *walk) lane(ctx context.Context, v *victim) error {
	if err := v.mark(); err != nil {
		return err
	}
	for {
		answers, err := w.arm(ctx, v)
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", v.name, err)
		case !answers:
		default:
			dead, err := w.watch(ctx, v)
			if err != nil || !dead {
				return err
			}
		}
		if err := w.died(v); err != nil {
			return err
		}
		if err := v.start(w.spec(v, true)); err != nil {
			return err
		}
	}
}

// arm arms what is left in a server as soon as it answers; false: it has died before.
func (w *walk) arm(ctx context.Context, v *victim) (bool, error) {
	answers := false
	ok, err := within(ctx, 20*time.Second, func() (bool, error) {
		if v.post(ctx, w.spec(v, false)) == nil {
			answers = true
			return true, nil
		}
		dead, err := v.dead()
		stopped, serr := v.stopped()
		answers = stopped
		return dead || stopped, errors.Join(err, serr)
	})
	if err == nil && !ok {
		err = errors.New("neither answers nor is it dead")
	}
	return answers, err
}

// spec arms what is left: for the start of a server, or when it answers. Early in its turn a point lets some pass by.
func (w *walk) spec(v *victim, start bool) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.overLocked() {
		return ""
	}
	if start {
		w.mu.lives[v.name]++
	}
	var out []string
	for _, p := range failpoint.All() {
		early := p.In == failpoint.ServerStart || slices.Contains(afterDeath, p.Name)
		n := 1
		if !early {
			n += w.mu.rng.IntN(1 + 12/(1+w.mu.lives[v.name]/4))
		}
		if w.mu.left[p.Name] && early == start {
			out = append(out, fmt.Sprintf("%s=%s@%d", p.Name, w.mu.verb, n))
		}
	}
	return strings.Join(out, ",")
}

// over: nothing more is to be struck in this round.
func (w *walk) overLocked() bool { return len(w.mu.left) == 0 || w.mu.round <= 0 }

func (w *walk) isOver() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.overLocked()
}

// watch waits until an armed server has died (true), or the round is over and it is disarmed. A server that stops goes on after a while.
func (w *walk) watch(ctx context.Context, v *victim) (bool, error) {
	t := time.NewTicker(tick)
	defer t.Stop()
	for failed := 0; ; {
		if dead, err := v.dead(); err != nil || dead {
			return dead, err
		}
		stopped, err := v.stopped()
		switch {
		case err != nil:
			return false, err
		case stopped:
			if err := w.goOn(v); err != nil {
				return false, err
			}
		case w.isOver() || ctx.Err() != nil:
			if err := v.post(context.Background(), disarmed()); err == nil {
				_, err := w.reached(v)
				return false, errors.Join(err, ctx.Err())
			} else if failed++; failed == 100 { // else it dies or stops at the last moment
				return false, err
			}
		}
		<-t.C
	}
}

func disarmed() string {
	var off []string
	for _, p := range failpoint.All() {
		off = append(off, p.Name+"=off")
	}
	return strings.Join(off, ",")
}

// reached notes the points that a server has said it reached.
func (w *walk) reached(v *victim) (int, error) {
	points, err := v.struck(w.mu.verb)
	if err != nil || len(points) == 0 {
		return 0, err
	}
	w.note("%s at %s: %s", w.mu.verb, v.name, points)
	if err := v.mark(); err != nil {
		return 0, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range points {
		delete(w.mu.left, p)
		w.mu.walked[p] = true
	}
	return len(points), nil
}

// died notes where.
func (w *walk) died(v *victim) error {
	lines, err := v.said()
	if err != nil {
		return err
	}
	n, err := w.reached(v)
	if err == nil && n == 0 {
		err = fmt.Errorf("%s has died, but not at a failpoint: %q", v.name, lines[max(0, len(lines)-10):])
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.kills++
	w.mu.round--
	return err
}

// goOn lets a stopped process go on after a while.
func (w *walk) goOn(v *victim) error {
	w.mu.Lock()
	w.mu.stops++
	w.mu.round--
	long := time.Second + time.Duration(w.mu.rng.IntN(int(stopMax()-time.Second)))
	w.mu.Unlock()
	if _, err := w.reached(v); err != nil {
		return err
	}
	_, err := within(context.Background(), long, never)
	return errors.Join(err, v.signal(syscall.SIGCONT))
}

// compare holds the workers and looks for everything through a mount whose cache is empty.
func (w *walk) compare() error {
	for _, x := range w.ws {
		x.rest.Lock()
		defer x.rest.Unlock()
	}
	w.note("comparing")
	dir, err := os.MkdirTemp(filepath.Dir(w.c.state), "empty")
	if err != nil {
		return err
	}
	if _, err := w.c.run("mount", dir); err != nil {
		return err
	}
	err = nil
	for _, x := range w.ws {
		err = errors.Join(err, x.compare(filepath.Join(dir, bucket, filepath.Base(x.top)), true))
	}
	w.mu.compared++
	w.note("compared")
	_, uerr := w.c.run("umount", dir)
	return errors.Join(err, uerr)
}

// long reports whether there is time for everything.
func long() bool { return os.Getenv(longEnv) != "" }

// longEnv lets each point be walked with kill and stop, for as long as it takes.
const longEnv = "OBJCACHE_CRASH_SECONDS"

// stopMax is the longest stop.
func stopMax() time.Duration {
	if long() {
		return 10 * time.Second
	}
	return 3 * time.Second
}

// walked is a cluster built with failpoints, whose log is cut often, under a workload.
func walked(t *testing.T, seed uint64) (*cluster, []*worker, string) {
	t.Helper()
	path := build(t, "failpoints")
	l := newLauncher(t, failpoint.LogSegmentBytes+"=262144", failpoint.SnapshotEntries+"=250", failpoint.ChunkSegmentBytes+"=262144")
	c := newCluster(t, l, path)
	c.must("up", "--flush-interval", "400ms", "--capacity", "1GiB")
	return c, c.workers(seed, true), path
}

func TestFailpoints_NothingAcknowledgedIsLostAndNoProgramSeesAnError(t *testing.T) {
	seed := number(t, "OBJCACHE_SEED", 57)
	c, ws, path := walked(t, seed)
	w, err := newWalk(c, ws, seed)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d; walk:\n %s", seed, strings.Join(w.mu.log, "\n "))
		}
	})
	began := time.Now()
	if err := together(t.Context(), w.everything, ws); err != nil {
		t.Fatal(err)
	}
	verify(t, c, path, ws)
	t.Logf("seed %d: %d failpoints walked, %d kills, %d stops, %d acknowledged operations checked, %d comparisons through an empty cache, %v", seed,
		len(w.mu.walked), w.mu.kills, w.mu.stops, acknowledged(ws), w.mu.compared+1, time.Since(began).Round(time.Second))
}

// everything is the walk: each point with kill, and a few or all with stop.
func (w *walk) everything(ctx context.Context) error {
	var all, during []failpoint.Info
	for _, p := range failpoint.All() {
		switch p.In {
		case failpoint.Server:
			all, during = append(all, p), append(during, p)
		case failpoint.ServerStart:
			all = append(all, p)
		}
	}
	limit := 4 * time.Minute // a busy machine is slow; it ends when every point was reached
	if long() {
		limit = 20 * time.Minute
	}
	if err := w.through(ctx, "kill", all, limit); err != nil {
		return err
	}
	during = slices.DeleteFunc(during, func(p failpoint.Info) bool { return slices.Contains(seldom, p.Name) })
	w.mu.rng.Shuffle(len(during), func(i, j int) { during[i], during[j] = during[j], during[i] })
	if !long() {
		during = during[:6]
	}
	return w.through(ctx, "stop", during, limit)
}

func never() (bool, error) { return false, nil }
