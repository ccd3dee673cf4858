//go:build integration

package servertest

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server"
	"github.com/objcache/objcache/server/external"
)

// churner is a player that mostly renames directories.
type churner struct {
	*player
	opened []objcache.Ino
	closes bool // opens nothing more
}

// know looks up the numbers of a place of the model that a fresh cluster has not told yet.
func (c *churner) know(ctx context.Context, at string) {
	x := c.root
	for _, n := range strings.Split(at, "/") {
		if at == "" {
			return
		}
		next := x.dir[n]
		if next.ino == 0 {
			a, err := c.c.Lookup(ctx, x.ino, n)
			if err != nil {
				c.failf("lookup of %q of %q: %v", n, at, err)
			}
			next.ino = a.Ino
		}
		x = next
	}
}

// some picks a place that fits, with its number known.
func (c *churner) some(ctx context.Context, ok func(*inode) bool) (named, bool) {
	f, found := c.pick(ok)
	if found {
		c.know(ctx, f.path)
	}
	return f, found
}

func (c *churner) where(ctx context.Context) named {
	if d, ok := c.some(ctx, isDir); ok && c.rng.IntN(3) > 0 {
		return d
	}
	return named{node: c.root}
}

func (c *churner) short() string { return fmt.Sprintf("n%d", c.rng.IntN(4)) }

func (c *churner) turn(ctx context.Context) {
	switch k := c.rng.IntN(100); {
	case k < 14:
		c.newFile(ctx)
	case k < 24:
		c.newDir(ctx)
	case k < 50:
		c.move(ctx, isDir)
	case k < 58:
		c.move(ctx, anything)
	case k < 70:
		c.exchange(ctx)
	case k < 78:
		c.circle(ctx)
	case k < 84:
		c.intoItself(ctx)
	case k < 88:
		c.remove(ctx)
	case k < 92:
		if f, ok := c.some(ctx, isDir); ok {
			c.note("rmdir %s (%d)", f.path, f.node.ino)
			if c.expect(c.c.Rmdir(ctx, f.parent.ino, f.name), objcache.NotEmpty, len(f.node.dir) > 0) {
				delete(f.parent.dir, f.name)
			}
		}
	case k < 95:
		c.hardLink(ctx)
	default:
		if f, ok := c.some(ctx, isFile); ok {
			b := c.bytes(1 + c.rng.IntN(9000))
			c.note("overwrite %s (%d)", f.path, f.node.ino)
			_, err := c.c.Flush(ctx, objcache.Flush{
				Ino: f.node.ino, Dirty: []objcache.Range{{Len: int64(len(b))}}, Src: at{0, b}, Size: int64(len(b)), Mtime: time.Now(),
			})
			c.expect(err, 0, false)
			f.node.put(0, b)
		}
	}
}

func (c *churner) newFile(ctx context.Context) {
	d, n := c.where(ctx), c.short()
	x := &inode{mode: 0o600, links: 1}
	node := objcache.NewNode{Mode: objcache.ModeRegular | 0o600}
	if c.rng.IntN(5) == 0 {
		x.target = "to/" + n
		node = objcache.NewNode{Mode: objcache.ModeSymlink | 0o777, Target: x.target}
	}
	c.note("create %s/%s in %d", d.path, n, d.node.ino)
	a, err := c.c.Create(ctx, d.node.ino, n, node)
	if !c.expect(err, objcache.Exist, d.node.dir[n] != nil) {
		return
	}
	x.ino = a.Ino
	d.node.dir[n] = x
	if x.target != "" {
		return
	}
	b := c.bytes(1 + c.rng.IntN([]int{50, 9000, 9000, 100_000}[c.rng.IntN(4)]))
	_, err = c.c.Flush(ctx, objcache.Flush{
		Ino: a.Ino, Dirty: []objcache.Range{{Len: int64(len(b))}}, Src: at{0, b}, Size: int64(len(b)), Mtime: time.Now(),
	})
	c.expect(err, 0, false)
	x.body = b
}

func (c *churner) newDir(ctx context.Context) {
	d, n := c.where(ctx), c.short()
	c.note("mkdir %s/%s in %d", d.path, n, d.node.ino)
	a, err := c.c.Create(ctx, d.node.ino, n, objcache.NewNode{Mode: objcache.ModeDir | 0o755})
	if c.expect(err, objcache.Exist, d.node.dir[n] != nil) {
		d.node.dir[n] = &inode{ino: a.Ino, dir: map[string]*inode{}}
	}
}

func (c *churner) move(ctx context.Context, which func(*inode) bool) {
	f, ok := c.some(ctx, which)
	if !ok {
		return
	}
	c.rename(ctx, f, c.where(ctx), c.short())
}

// rename renames if the model says that it can be; what is refused is the other model's matter.
func (c *churner) rename(ctx context.Context, f, d named, n string) bool {
	to := d.node.dir[n]
	switch {
	case f.node.dir != nil && below(d.node, f.node), to == f.node:
		return false
	case to != nil && (to.dir == nil) != (f.node.dir == nil), to != nil && len(to.dir) > 0:
		return false
	}
	c.note("rename %s (%d) to %s/%s in %d", f.path, f.node.ino, d.path, n, d.node.ino)
	c.expect(c.c.Rename(ctx, f.parent.ino, f.name, d.node.ino, n, 0), 0, false)
	delete(f.parent.dir, f.name)
	d.node.dir[n] = f.node
	if to != nil {
		to.links--
	}
	return true
}

func (c *churner) exchange(ctx context.Context) {
	a, ok := c.some(ctx, anything)
	b, _ := c.some(ctx, anything)
	if !ok || a.node == b.node || a.node.dir != nil && below(b.parent, a.node) || b.node.dir != nil && below(a.parent, b.node) {
		return
	}
	c.note("exchange %s (%d) and %s (%d)", a.path, a.node.ino, b.path, b.node.ino)
	c.expect(c.c.Rename(ctx, a.parent.ino, a.name, b.parent.ino, b.name, 2), 0, false)
	a.parent.dir[a.name], b.parent.dir[b.name] = b.node, a.node
}

// circle hands the names of some entries of one directory round.
func (c *churner) circle(ctx context.Context) {
	d := c.where(ctx)
	names := slices.Sorted(maps.Keys(d.node.dir))
	if len(names) < 2 || d.node.dir["t"] != nil {
		return
	}
	c.rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	names = names[:2+c.rng.IntN(len(names)-1)]
	for i := 0; i <= len(names); i++ {
		from, to := "t", names[len(names)-1]
		if i < len(names) {
			from = names[i]
			to = append([]string{"t"}, names...)[i]
		}
		at := path.Join(d.path, from)
		c.know(ctx, at)
		if !c.rename(ctx, named{d.node, from, at, d.node.dir[from]}, d, to) {
			c.failf("rename %q to %q in a circle", from, to)
		}
	}
}

// intoItself moves a directory below a new one of its own old name.
func (c *churner) intoItself(ctx context.Context) {
	f, ok := c.some(ctx, anything)
	if !ok {
		return
	}
	up := named{node: f.parent, path: strings.TrimSuffix(strings.TrimSuffix(f.path, f.name), "/")}
	if up.node.dir["t"] != nil || !c.rename(ctx, f, up, "t") {
		return
	}
	a, err := c.c.Create(ctx, up.node.ino, f.name, objcache.NewNode{Mode: objcache.ModeDir | 0o755})
	c.note("mkdir %s (%d)", f.path, a.Ino)
	c.expect(err, 0, false)
	d := named{up.node, f.name, f.path, &inode{ino: a.Ino, dir: map[string]*inode{}}}
	up.node.dir[f.name] = d.node
	c.rename(ctx, named{up.node, "t", path.Join(up.path, "t"), f.node}, d, c.short())
}

func (c *churner) remove(ctx context.Context) {
	f, ok := c.some(ctx, notDir)
	if !ok {
		return
	}
	if isFile(f.node) && c.rng.IntN(3) == 0 && !c.closes {
		c.note("open %s (%d)", f.path, f.node.ino)
		if _, err := c.c.Open(ctx, f.node.ino); err != nil {
			c.failf("open: %v", err)
		}
		c.opened = append(c.opened, f.node.ino)
	}
	c.note("unlink %s (%d)", f.path, f.node.ino)
	c.expect(c.c.Unlink(ctx, f.parent.ino, f.name), 0, false)
	delete(f.parent.dir, f.name)
	f.node.links--
}

func (c *churner) hardLink(ctx context.Context) {
	f, ok := c.some(ctx, isFile)
	if !ok || f.node.links == 0 {
		return
	}
	d, n := c.where(ctx), c.short()
	c.note("link %s (%d) as %s/%s in %d", f.path, f.node.ino, d.path, n, d.node.ino)
	_, err := c.c.Link(ctx, f.node.ino, d.node.ino, n)
	if c.expect(err, objcache.Exist, d.node.dir[n] != nil) {
		d.node.dir[n] = f.node
		f.node.links++
	}
}

// settled waits until the bucket holds what the model says and nothing is on its way.
func (c *churner) settled() {
	c.r.t.Helper()
	c.r.flush()
	want := c.objects("p")
	var keys []string
	sorted := slices.Sorted(maps.Keys(want))
	within(20*time.Second, func() bool { // what was open goes after its release
		keys = c.r.keys()
		return slices.Equal(keys, sorted) || slices.ContainsFunc(sorted, func(k string) bool { return !slices.Contains(keys, k) })
	})
	if !slices.Equal(keys, sorted) {
		c.failf("the bucket holds\n%q, should be\n%q", keys, sorted)
	}
	for k, b := range want {
		if got := c.r.object(k); string(got) != string(b) {
			c.failf("object %q of %d bytes differs from the file of %d", k, len(got), len(b))
		}
	}
	page, err := c.r.s3.List(c.r.t.Context(), external.ListRequest{Prefix: ".objcache/moving/"})
	if err != nil || len(page.Objects) > 0 {
		c.failf("left on a detour: %v, %v", page.Objects, err)
	}
}

// reloaded goes on with a fresh cluster, which knows only the bucket. Hard links are files of their own there.
func (c *churner) reloaded(ctx context.Context, change func(*server.Config)) {
	c.r = c.r.reloadWith(3, change)
	c.c, c.opened = c.r.c, nil
	fresh := func(x *inode) *inode {
		if x.dir != nil {
			x.ino = 0
			return x
		}
		return &inode{body: slices.Clone(x.body), target: x.target, mode: x.mode, links: 1}
	}
	for _, n := range c.all() {
		n.parent.dir[n.name] = fresh(n.node)
	}
	a, err := c.c.Lookup(ctx, c.r.b, "p")
	if err != nil {
		c.failf("lookup after a reload: %v", err)
	}
	c.root.ino = a.Ino
	c.note("a fresh cluster")
}

func TestChurn_DirectoriesRenamedAtRandomAlwaysReachTheBucket(t *testing.T) {
	for _, seed := range seeds(t, 2085) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { churn(t, seed) })
	}
}

func churn(t *testing.T, seed uint64) {
	change := func(c *server.Config) {
		c.FlushInterval = server.Duration([]time.Duration{time.Hour, 30 * time.Millisecond, 300 * time.Millisecond}[seed%3])
		c.ExternalTTL = server.Duration(30 * time.Millisecond)
	}
	r := newRig(t, 3, change)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	c := &churner{player: &player{r: r, c: r.c, rng: rand.New(rand.NewPCG(seed, 7))}}
	c.root = &inode{ino: r.mkdir(r.b, "p"), dir: map[string]*inode{}}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d:\n%s", seed, joined(c.log))
		}
	})
	c.guard(func() {
		for round := range 4 {
			c.closes = round%2 == 1 // after a restart everything counts as open for half a minute
			for range 10 + 10*round {
				c.turn(ctx)
				if c.rng.IntN(12) == 0 {
					c.checkTree(ctx)
				}
			}
			if round%2 == 1 {
				c.note("restart")
				r.restart(c.rng)
			}
			c.checkTree(ctx)
			c.r.flush()
			for _, ino := range c.opened { // an object may stay as long as its file is open
				c.c.Release(ino)
			}
			c.opened = nil
			c.settled()
			c.checkTree(ctx)
			if round%2 == 1 {
				c.reloaded(ctx, change)
				r = c.r
			}
		}
		c.checkTree(ctx)
	})
}

// checkTree compares names and bytes with the model.
func (c *churner) checkTree(ctx context.Context) {
	c.r.t.Helper()
	a, err := c.c.Getattr(ctx, c.root.ino)
	if err != nil {
		c.failf("getattr of the top: %v", err)
	}
	c.note("compare")
	c.compareFresh(ctx, a, c.root, "p")
}
