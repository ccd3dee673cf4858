//go:build integration

package crash

import (
	"context"
	"errors"
	"fmt"
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

	"github.com/objcache/objcache/dev"
	"github.com/objcache/objcache/failpoint"
)

const (
	patience = 4 * time.Second // for the workload to pass a point of one server; then another server's turn comes
	triesMax = 9               // of one point
	between  = 40              // points between two comparisons through an empty cache
)

// task is a point to be passed.
type task struct {
	failpoint.Info
	verb  string // kill or stop
	after string // a point at which the same server dies before: only its start, or the others, come to this one
	other bool   // the others come to it
	tries int
}

// prelude says after which death a point is passed that no process comes to by itself.
var prelude = map[string]task{
	"s3.abort-upload.before": {after: "parts.sent"},
	"s3.abort-upload.after":  {after: "parts.sent"},
	"s3.list-uploads.before": {after: "parts.sent"},
	"s3.list-uploads.after":  {after: "parts.sent"},
	"query.received":         {after: "commit.before"},
	"query.asking":           {after: "commit.before", other: true},
	"query.answered":         {after: "commit.before", other: true},
}

// walk disturbs a workload at every point, in three servers at the same time.
type walk struct {
	c       *cluster
	rng     *rand.Rand
	victims []*victim
	ws      []*worker
	mu      struct {
		sync.Mutex
		queue              []task
		done, kills, stops int
		compared           int
		log                []string
	}
}

func newWalk(c *cluster, ws []*worker, seed uint64) (*walk, error) {
	st, err := c.status()
	if err != nil {
		return nil, err
	}
	w := &walk{c: c, rng: rand.New(rand.NewPCG(seed, 2000)), ws: ws}
	for _, s := range st.Servers {
		v, err := c.victim(st, s.Name)
		if err != nil {
			return nil, err
		}
		w.victims = append(w.victims, v)
	}
	return w, nil
}

// tasks lists the points of some processes in a random order.
func (w *walk) tasks(verb string, in ...failpoint.Process) []task {
	var out []task
	for _, p := range failpoint.All() {
		if !slices.Contains(in, p.In) {
			continue
		}
		t := prelude[p.Name]
		t.Info, t.verb = p, verb
		out = append(out, t)
	}
	w.rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

func (w *walk) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.log = append(w.mu.log, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// all carries tasks out, those that need two servers one at a time, and now and then compares.
func (w *walk) all(ctx context.Context, tasks []task) error {
	for i, t := range tasks {
		if !t.other {
			continue
		}
		w.mu.queue = []task{t}
		if err := w.lane(ctx, w.victims[i%len(w.victims)]); err != nil {
			return err
		}
	}
	tasks = slices.DeleteFunc(tasks, func(t task) bool { return t.other })
	for len(tasks) > 0 {
		n := min(len(tasks), between)
		w.mu.queue, tasks = tasks[:n], tasks[n:]
		g, ctx := errgroup.WithContext(ctx)
		for _, v := range w.victims {
			g.Go(func() error { return w.lane(ctx, v) })
		}
		if err := g.Wait(); err != nil {
			return err
		}
		if err := w.compare(); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) lane(ctx context.Context, v *victim) error {
	for ctx.Err() == nil {
		w.mu.Lock()
		if len(w.mu.queue) == 0 {
			w.mu.Unlock()
			return nil
		}
		t := w.mu.queue[0]
		w.mu.queue = w.mu.queue[1:]
		w.mu.Unlock()
		passed, err := w.strike(ctx, v, t)
		if err != nil {
			return fmt.Errorf("%s at %s: %w", t.Name, v.name, err)
		}
		w.mu.Lock()
		switch {
		case passed:
			w.mu.done++
		case t.tries+1 == triesMax:
			err = fmt.Errorf("the workload never comes to failpoint %s (%s)", t.Name, t.Text)
		default:
			t.tries++
			w.mu.queue = append(w.mu.queue, t)
		}
		w.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// strike has one server reach one point, and brings it back; false: it did not come by.
func (w *walk) strike(ctx context.Context, v *victim, t task) (bool, error) {
	if t.In == failpoint.ServerStart {
		return w.strikeStart(ctx, v, t)
	}
	if t.after != "" {
		return w.strikeAfter(ctx, v, t)
	}
	if err := v.arm(ctx, t.Name+"="+t.verb+w.nth(t)); err != nil {
		return false, err
	}
	return w.await(ctx, v, t)
}

// nth lets some passers-by go at the first try.
func (w *walk) nth(t task) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t.tries > 0 {
		return ""
	}
	return fmt.Sprintf("@%d", 1+w.rng.IntN(3))
}

// await waits until the victim has struck, and brings it back.
func (w *walk) await(ctx context.Context, v *victim, t task) (bool, error) {
	struck := func() (bool, error) { return v.struck(t.Info, t.verb) }
	yes, err := within(ctx, patience, struck)
	if err != nil {
		return false, err
	}
	if !yes {
		w.note("%s passes by %s", t.Name, v.name)
		err := v.post(ctx, t.Name+"=off")
		if yes, serr := struck(); serr != nil || !yes {
			return false, errors.Join(err, serr)
		}
	}
	return true, w.revive(ctx, v, t, "")
}

// revive brings a server back that has reached a point.
func (w *walk) revive(ctx context.Context, v *victim, t task, spec string) error {
	w.note("%s at %s: %s", t.verb, v.name, t.Name)
	if t.verb == "stop" {
		return w.goOn(ctx, v)
	}
	if yes, err := within(ctx, 10*time.Second, v.dead); err != nil || !yes {
		return errors.Join(err, fmt.Errorf("%s was to die: %v", v.name, yes))
	}
	w.mu.Lock()
	w.mu.kills++
	w.mu.Unlock()
	err := v.start(spec)
	w.note("%s is back", v.name)
	return err
}

// goOn lets a stopped process go on after a while.
func (w *walk) goOn(ctx context.Context, v *victim) error {
	if yes, err := within(ctx, 10*time.Second, v.stopped); err != nil || !yes {
		return errors.Join(err, fmt.Errorf("%s was to stop: %v", v.name, yes))
	}
	w.mu.Lock()
	w.mu.stops++
	long := time.Second + time.Duration(w.rng.IntN(int(stopMax(w.c.t)-time.Second)+1))
	w.mu.Unlock()
	_, err := within(ctx, long, func() (bool, error) { return false, nil })
	pid, perr := v.pid()
	if perr == nil {
		perr = syscall.Kill(pid, syscall.SIGCONT)
	}
	return errors.Join(err, perr)
}

// strikeStart kills a server and lets it die once more while it starts.
func (w *walk) strikeStart(ctx context.Context, v *victim, t task) (bool, error) {
	if _, err := w.c.run("kill", v.name); err != nil {
		return false, err
	}
	if st, err := os.Stat(filepath.Join(v.dir, "log")); err != nil {
		return false, err
	} else {
		v.seen = st.Size()
	}
	serr := v.start(t.Name + "=" + t.verb)
	if yes, err := v.struck(t.Info, t.verb); err != nil || !yes {
		return false, errors.Join(err, serr)
	}
	return true, w.revive(ctx, v, t, "")
}

// strikeAfter lets a server die at another point, so that it, or one of the others, comes to this one.
func (w *walk) strikeAfter(ctx context.Context, v *victim, t task) (bool, error) {
	first := task{Info: failpoint.Info{Name: t.after}, verb: "kill"}
	if err := v.arm(ctx, t.after+"=kill"); err != nil {
		return false, err
	}
	yes, err := within(ctx, patience, func() (bool, error) { return v.struck(first.Info, first.verb) })
	if err != nil || !yes {
		return false, errors.Join(err, v.post(ctx, t.after+"=off"))
	}
	if !t.other {
		seen := v.seen
		serr := w.revive(ctx, v, first, t.Name+"="+t.verb)
		if v.seen = seen; serr == nil {
			return w.await(ctx, v, t)
		}
		if yes, err := v.struck(t.Info, t.verb); err != nil || !yes { // it may die before it answers
			return false, errors.Join(err, serr)
		}
		return true, w.revive(ctx, v, t, "")
	}
	return w.strikeOther(ctx, v, first, t)
}

// strikeOther has one of the other servers reach a point after v has died and come back. No other lane may be under way.
func (w *walk) strikeOther(ctx context.Context, v *victim, first, t task) (bool, error) {
	var others []*victim
	for _, o := range w.victims {
		if o != v {
			watch := *o
			if st, err := os.Stat(filepath.Join(o.dir, "log")); err != nil {
				return false, err
			} else {
				watch.seen = st.Size()
			}
			if err := watch.post(ctx, t.Name+"="+t.verb); err != nil {
				return false, err
			}
			others = append(others, &watch)
		}
	}
	if err := w.revive(ctx, v, first, ""); err != nil {
		return false, err
	}
	yes, err := within(ctx, patience, func() (bool, error) {
		for _, o := range others {
			if yes, err := o.struck(t.Info, t.verb); yes || err != nil {
				return yes, err
			}
		}
		return false, nil
	})
	for _, o := range others {
		_ = o.post(ctx, t.Name+"=off") // dead: seen below
	}
	for _, o := range others {
		late, serr := o.struck(t.Info, t.verb)
		if serr != nil || err != nil {
			return false, errors.Join(err, serr)
		}
		if late {
			yes, err = true, w.revive(ctx, o, t, "")
		}
	}
	return yes, err
}

// compare holds the workers and looks for everything through a mount whose cache is empty.
func (w *walk) compare() error {
	for _, x := range w.ws {
		x.rest.Lock()
		defer x.rest.Unlock()
	}
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
	w.mu.Lock()
	w.mu.compared++
	w.mu.Unlock()
	w.note("compared")
	_, uerr := w.c.run("umount", dir)
	return errors.Join(err, uerr)
}

// stopMax is the longest stop, of at most 10 s.
func stopMax(t *testing.T) time.Duration {
	if os.Getenv(longEnv) != "" {
		return 10 * time.Second
	}
	return 2 * time.Second
}

// longEnv lets each point be walked in each server, with kill and stop, for as long as it takes.
const longEnv = "OBJCACHE_CRASH_SECONDS"

// walked is a cluster built with failpoints, whose log is cut often, under a workload.
func walked(t *testing.T, seed uint64) (*cluster, []*worker, string) {
	t.Helper()
	t.Setenv(failpoint.LogSegmentBytes, "262144")
	t.Setenv(failpoint.SnapshotEntries, "250")
	t.Setenv(failpoint.ChunkSegmentBytes, "1048576")
	path := build(t, "failpoints")
	c := newCluster(t, newLauncher(t), path)
	c.must("up", "--flush-interval", "400ms", "--capacity", "1GiB")
	var ws []*worker
	for i := range workers {
		w := newWorker(filepath.Join(c.mnt(), bucket, fmt.Sprintf("w%d", i)), seed, uint64(i))
		w.large = true
		if err := os.Mkdir(w.top, 0o755); err != nil {
			t.Fatal(err)
		}
		ws = append(ws, w)
	}
	return c, ws, path
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
			for _, x := range ws {
				t.Logf("%s:\n %s", x.top, strings.Join(x.log[max(0, len(x.log)-400):], "\n "))
			}
		}
	})
	began := time.Now()
	if err := together(t.Context(), w.everything, ws); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, x := range ws {
		n += len(x.log)
	}
	t.Logf("%d failpoints walked: %d kills, %d stops; %d operations acknowledged; %d comparisons through an empty cache; %v", w.mu.done, w.mu.kills, w.mu.stops, n,
		w.mu.compared, time.Since(began).Round(time.Second))
	verify(t, c, path, ws)
}

// everything is the walk: each point once with kill and a few with stop, or as often as there is time.
func (w *walk) everything(ctx context.Context) error {
	tasks := w.tasks("kill", failpoint.Server, failpoint.ServerStart)
	stops := w.tasks("stop", failpoint.Server)
	if os.Getenv(longEnv) == "" {
		stops = slices.DeleteFunc(stops, func(t task) bool { return t.after != "" })[:6]
	}
	if err := w.all(ctx, append(tasks, stops...)); err != nil {
		return err
	}
	return w.s3Goes(ctx)
}

// s3Goes kills the S3 server, and then lets it be silent, while the workload goes on.
func (w *walk) s3Goes(ctx context.Context) error {
	if _, err := w.c.run("kill", "s3"); err != nil {
		return err
	}
	w.note("s3 is dead")
	if _, err := within(ctx, 3*time.Second, never); err != nil {
		return err
	}
	if _, err := w.c.run("start", "s3"); err != nil {
		return err
	}
	w.note("s3 is back")
	var st dev.Status
	st, err := w.c.status()
	if err != nil {
		return err
	}
	if err := syscall.Kill(st.S3.PID, syscall.SIGSTOP); err != nil {
		return err
	}
	w.note("s3 is silent")
	_, err = within(ctx, 4*time.Second, never)
	if err := errors.Join(err, syscall.Kill(st.S3.PID, syscall.SIGCONT)); err != nil {
		return err
	}
	return w.compare()
}

func never() (bool, error) { return false, nil }
