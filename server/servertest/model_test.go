//go:build integration

package servertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server"
	"github.com/objcache/objcache/server/client"
)

// inode is a file, directory or symlink of the model.
type inode struct {
	ino    objcache.Ino
	dir    map[string]*inode // directories
	body   []byte
	target string
	mode   uint32
	links  int
	xattrs map[string]string
}

// player works in its own subtree and keeps a model of it.
type player struct {
	r    *rig
	c    *client.Client
	rng  *rand.Rand
	root *inode
	log  []string
}

func (p *player) failf(format string, args ...any) {
	p.r.t.Helper()
	last := p.log[max(0, len(p.log)-25):]
	p.r.t.Errorf("%s\nlast operations:\n%s", fmt.Sprintf(format, args...), joined(last))
	panic(stopPlaying{})
}

// stopPlaying ends a player that has failed.
type stopPlaying struct{}

func joined(ss []string) string {
	var b bytes.Buffer
	for _, s := range ss {
		fmt.Fprintln(&b, " ", s)
	}
	return b.String()
}

// named is a place in the model.
type named struct {
	parent *inode
	name   string
	path   string
	node   *inode
}

func (p *player) all() []named {
	var out []named
	var walk func(d *inode, at string)
	walk = func(d *inode, at string) {
		for _, n := range slices.Sorted(maps.Keys(d.dir)) {
			x := d.dir[n]
			out = append(out, named{d, n, path.Join(at, n), x})
			if x.dir != nil {
				walk(x, path.Join(at, n))
			}
		}
	}
	walk(p.root, "")
	return out
}

func (p *player) pick(ok func(*inode) bool) (named, bool) {
	var fit []named
	for _, n := range p.all() {
		if ok(n.node) {
			fit = append(fit, n)
		}
	}
	if len(fit) == 0 {
		return named{}, false
	}
	return fit[p.rng.IntN(len(fit))], true
}

func isFile(n *inode) bool { return n.dir == nil && n.target == "" }
func isDir(n *inode) bool  { return n.dir != nil }
func notDir(n *inode) bool { return n.dir == nil }
func anything(*inode) bool { return true }
func (p *player) dir() *inode {
	if n, ok := p.pick(isDir); ok && p.rng.IntN(4) > 0 {
		return n.node
	}
	return p.root
}

func (p *player) name() string { return fmt.Sprintf("n%d", p.rng.IntN(7)) }

func below(x, top *inode) bool {
	if x == top {
		return true
	}
	for _, c := range top.dir {
		if c.dir != nil && below(x, c) {
			return true
		}
	}
	return false
}

// expect checks an operation's error against what the model says must happen.
func (p *player) expect(err error, want objcache.Kind, fails bool) bool {
	p.r.t.Helper()
	switch {
	case !fails && err != nil:
		p.failf("failed: %v", err)
	case fails && err == nil:
		p.failf("succeeded, should be refused: %v", want)
	case fails && !errors.Is(err, want):
		p.failf("refused with %v, should be %v", err, want)
	}
	return !fails
}

func (p *player) note(format string, args ...any) {
	p.log = append(p.log, fmt.Sprintf(format, args...))
}

func (p *player) step(ctx context.Context) {
	switch k := p.rng.IntN(100); {
	case k < 18:
		p.create(ctx)
	case k < 26:
		p.mkdir(ctx)
	case k < 46:
		p.write(ctx)
	case k < 54:
		p.truncate(ctx)
	case k < 60:
		p.add(ctx)
	case k < 74:
		p.rename(ctx)
	case k < 79:
		p.link(ctx)
	case k < 87:
		p.unlink(ctx)
	case k < 91:
		p.rmdir(ctx)
	case k < 94:
		p.attributes(ctx)
	default:
		p.look(ctx)
	}
}

func (p *player) create(ctx context.Context) {
	d, n := p.dir(), p.name()
	x := &inode{mode: 0o600, links: 1}
	node := objcache.NewNode{Mode: objcache.ModeRegular | 0o600}
	if p.rng.IntN(6) == 0 {
		x.target = "to/" + n
		node = objcache.NewNode{Mode: objcache.ModeSymlink | 0o777, Target: x.target}
	}
	p.note("create %q in %d", n, d.ino)
	a, err := p.c.Create(ctx, d.ino, n, node)
	if p.expect(err, objcache.Exist, d.dir[n] != nil) {
		x.ino = a.Ino
		d.dir[n] = x
	}
}

func (p *player) mkdir(ctx context.Context) {
	d, n := p.dir(), p.name()
	p.note("mkdir %q in %d", n, d.ino)
	a, err := p.c.Create(ctx, d.ino, n, objcache.NewNode{Mode: objcache.ModeDir | 0o755})
	if p.expect(err, objcache.Exist, d.dir[n] != nil) {
		d.dir[n] = &inode{ino: a.Ino, dir: map[string]*inode{}}
	}
}

func (p *player) size() int64 {
	switch p.rng.IntN(8) {
	case 0:
		return objcache.ChunkSize - 3000 + p.rng.Int64N(6000) // over the border of two chunks
	case 1, 2, 3:
		return p.rng.Int64N(400 << 10)
	}
	return p.rng.Int64N(9000)
}

func (p *player) bytes(n int) []byte {
	return random(n, p.rng.Uint64())
}

func (p *player) write(ctx context.Context) {
	f, ok := p.pick(isFile)
	if !ok {
		return
	}
	x := f.node
	off := min(p.size(), int64(len(x.body))+5000)
	b := p.bytes(1 + p.rng.IntN([]int{100, 9000, 300 << 10}[p.rng.IntN(3)]))
	p.note("write %d at %d of %s (%d)", len(b), off, f.path, x.ino)
	rs := []objcache.Range{{Off: off, Len: int64(len(b))}}
	fl := objcache.Flush{Ino: x.ino, Dirty: rs, Src: at{off, b}, Size: off + int64(len(b)), Mtime: time.Now()}
	if p.rng.IntN(3) == 0 {
		if err := p.c.Stage(ctx, x.ino, rs[0], fl.Src); err != nil {
			p.failf("stage: %v", err)
		}
		fl.Staged, fl.Dirty = rs, nil
	}
	_, err := p.c.Flush(ctx, fl)
	p.expect(err, 0, false)
	x.put(off, b)
}

func (x *inode) put(off int64, b []byte) {
	x.resize(max(int64(len(x.body)), off+int64(len(b))))
	copy(x.body[off:], b)
}

func (x *inode) resize(n int64) {
	if n <= int64(len(x.body)) {
		x.body = x.body[:n:n]
		return
	}
	x.body = append(x.body, make([]byte, n-int64(len(x.body)))...)
}

func (p *player) truncate(ctx context.Context) {
	f, ok := p.pick(isFile)
	if !ok {
		return
	}
	n := p.size()
	if p.rng.IntN(2) == 0 {
		n = p.rng.Int64N(int64(len(f.node.body)) + 1)
	}
	p.note("truncate %s (%d) from %d to %d", f.path, f.node.ino, len(f.node.body), n)
	_, err := p.c.Setattr(ctx, f.node.ino, objcache.SetAttr{Size: &n})
	p.expect(err, 0, false)
	f.node.resize(n)
}

func (p *player) add(ctx context.Context) {
	f, ok := p.pick(isFile)
	if !ok {
		return
	}
	b := p.bytes(1 + p.rng.IntN(20000))
	p.note("append %d to %s (%d)", len(b), f.path, f.node.ino)
	off, _, err := p.c.Append(ctx, f.node.ino, b, time.Now())
	p.expect(err, 0, false)
	if off != int64(len(f.node.body)) {
		p.failf("appended at %d, size is %d", off, len(f.node.body))
	}
	f.node.put(off, b)
}

func (p *player) rename(ctx context.Context) {
	f, ok := p.pick(anything)
	if !ok {
		return
	}
	d, n := p.dir(), p.name()
	to := d.dir[n]
	flags := uint32(0)
	if to != nil && isFile(to) && isFile(f.node) && p.rng.IntN(2) == 0 {
		flags = 2
	}
	p.note("rename %s (%d) to %q in %d, flags %d", f.path, f.node.ino, n, d.ino, flags)
	err := p.c.Rename(ctx, f.parent.ino, f.name, d.ino, n, flags)
	switch {
	case to == f.node:
		p.expect(err, 0, false)
		return
	case f.node.dir != nil && to != nil && to.dir == nil:
		p.expect(err, objcache.NotDir, true)
		return
	case f.node.dir == nil && to != nil && to.dir != nil:
		p.expect(err, objcache.IsDir, true)
		return
	case f.node.dir != nil && below(d, f.node):
		p.expect(err, objcache.Invalid, true)
		return
	case to != nil && len(to.dir) > 0:
		p.expect(err, objcache.NotEmpty, true)
		return
	}
	p.expect(err, 0, false)
	delete(f.parent.dir, f.name)
	d.dir[n] = f.node
	switch {
	case flags == 2:
		f.parent.dir[f.name] = to
	case to != nil:
		to.links--
	}
}

func (p *player) link(ctx context.Context) {
	f, ok := p.pick(isFile)
	if !ok {
		return
	}
	d, n := p.dir(), p.name()
	p.note("link %s (%d) as %q in %d", f.path, f.node.ino, n, d.ino)
	_, err := p.c.Link(ctx, f.node.ino, d.ino, n)
	if p.expect(err, objcache.Exist, d.dir[n] != nil) {
		d.dir[n] = f.node
		f.node.links++
	}
}

func (p *player) unlink(ctx context.Context) {
	f, ok := p.pick(notDir)
	if !ok {
		return
	}
	p.note("unlink %s (%d)", f.path, f.node.ino)
	p.expect(p.c.Unlink(ctx, f.parent.ino, f.name), 0, false)
	delete(f.parent.dir, f.name)
	f.node.links--
}

func (p *player) rmdir(ctx context.Context) {
	f, ok := p.pick(isDir)
	if !ok {
		return
	}
	p.note("rmdir %s (%d)", f.path, f.node.ino)
	if p.expect(p.c.Rmdir(ctx, f.parent.ino, f.name), objcache.NotEmpty, len(f.node.dir) > 0) {
		delete(f.parent.dir, f.name)
	}
}

func (p *player) attributes(ctx context.Context) {
	f, ok := p.pick(isFile)
	if !ok {
		return
	}
	mode := uint32(0o400 + p.rng.IntN(0o200))
	p.note("chmod and setxattr of %s (%d)", f.path, f.node.ino)
	_, err := p.c.Setattr(ctx, f.node.ino, objcache.SetAttr{Mode: &mode})
	p.expect(err, 0, false)
	f.node.mode = mode
	v := fmt.Sprint(p.rng.IntN(1000))
	p.expect(p.c.Setxattr(ctx, f.node.ino, "user.x", []byte(v), 0), 0, false)
	f.node.xattrs = map[string]string{"user.x": v}
}

func (p *player) look(ctx context.Context) {
	if f, ok := p.pick(isFile); ok {
		p.note("read %s (%d)", f.path, f.node.ino)
		p.check(ctx, f.parent, f.name, f.node)
	}
}

// check compares one name with the model.
func (p *player) check(ctx context.Context, d *inode, name string, x *inode) {
	p.r.t.Helper()
	a, err := p.c.Lookup(ctx, d.ino, name)
	if err != nil {
		p.failf("lookup of %q in %d: %v", name, d.ino, err)
	}
	switch {
	case a.Ino != x.ino:
		p.failf("%q in %d is inode %d, should be %d", name, d.ino, a.Ino, x.ino)
	case a.Target != x.target:
		p.failf("symlink %q shows %q, should be %q", name, a.Target, x.target)
	case isFile(x) && (int(a.Nlink) != x.links || a.Mode&0o7777 != x.mode):
		p.failf("%q (%d): %d links and mode %o, should be %d and %o", name, x.ino, a.Nlink, a.Mode, x.links, x.mode)
	}
	if !isFile(x) {
		return
	}
	p.sameBytes(ctx, a, x.body, name)
	for n, v := range x.xattrs {
		if got, err := p.c.Getxattr(ctx, x.ino, n); err != nil || string(got) != v {
			p.failf("attribute %q of %q is %q, should be %q: %v", n, name, got, v, err)
		}
	}
}

func (p *player) sameBytes(ctx context.Context, a objcache.Attr, want []byte, name string) {
	p.r.t.Helper()
	if a.Size != int64(len(want)) {
		p.failf("%q (%d) has size %d, should be %d", name, a.Ino, a.Size, len(want))
	}
	got := make([]byte, a.Size)
	if n, err := p.c.ReadAt(ctx, a.Ino, a.Version, got, 0); err != nil || n != len(got) {
		p.failf("read of %q (%d): %d of %d bytes: %v", name, a.Ino, n, len(got), err)
	}
	for i := 0; i < len(got) && !bytes.Equal(got, want); i++ {
		if got[i] != want[i] {
			p.failf("%q (%d) of %d bytes differs at byte %d", name, a.Ino, len(got), i)
		}
	}
}

// checkAll compares the whole subtree.
func (p *player) checkAll(ctx context.Context) {
	p.r.t.Helper()
	p.note("compare everything")
	for _, n := range append([]named{{node: p.root}}, p.all()...) {
		if n.parent != nil {
			p.check(ctx, n.parent, n.name, n.node)
		}
		if n.node.dir == nil {
			continue
		}
		if got, want := p.r.names(n.node.ino), slices.Sorted(maps.Keys(n.node.dir)); !slices.Equal(got, want) {
			p.failf("directory %q (%d) lists %q, should be %q", n.path, n.node.ino, got, want)
		}
	}
}

// objects is what the bucket must hold of the subtree.
func (p *player) objects(prefix string) map[string][]byte {
	out := map[string][]byte{prefix + "/": nil}
	for _, n := range p.all() {
		switch k := prefix + "/" + n.path; {
		case n.node.dir != nil:
			out[k+"/"] = nil
		case n.node.target != "":
			out[k] = []byte(n.node.target)
		default:
			out[k] = n.node.body
		}
	}
	return out
}

func (r *rig) allKeys() []string {
	return slices.DeleteFunc(r.keys(), func(k string) bool { return k[0] == '.' })
}

// TestModel_RandomOperationsWithRestarts runs several clients against a plain model of their subtrees, restarts servers in between, and compares the
// mount, the bucket and a fresh cluster on the bucket with the models.
func TestModel_RandomOperationsWithRestarts(t *testing.T) {
	for _, seed := range seeds(t, 490392) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { playModel(t, seed) })
	}
}

func playModel(t *testing.T, seed uint64) {
	const rounds, steps, players = 3, 24, 3
	r := newRig(t, 3, func(c *server.Config) {
		c.FlushInterval, c.ExternalTTL = server.Duration(700*time.Millisecond), server.Duration(150*time.Millisecond)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	rng := rand.New(rand.NewPCG(seed, 0))
	shared := r.mkdir(r.b, "shared")
	var ps []*player
	for i := range players {
		p := &player{r: r, c: r.cl.Client(), rng: rand.New(rand.NewPCG(seed, uint64(i)+1))}
		p.root = &inode{ino: r.mkdir(r.b, fmt.Sprintf("p%d", i)), dir: map[string]*inode{}}
		ps = append(ps, p)
	}
	t.Cleanup(func() {
		for i, p := range ps {
			if t.Failed() {
				t.Logf("seed %d, player %d:\n%s", seed, i, joined(p.log))
			}
		}
	})
	for round := range rounds {
		var wg sync.WaitGroup
		for _, p := range ps {
			wg.Go(func() { p.play(ctx, steps, shared) })
		}
		if round > 0 {
			wg.Go(func() { r.restart(rng) })
		}
		wg.Wait()
		if t.Failed() {
			t.Fatalf("seed %d, round %d", seed, round)
		}
		if round%2 == 1 {
			r.flush()
		}
		for _, p := range ps {
			p.guard(func() { p.checkAll(ctx) })
		}
	}
	r.checkTree(shared)
	r.flush()
	compareBucket(t, r, ps, seed)
	fresh := r.reload(2)
	for i, p := range ps {
		p.r, p.c = fresh, fresh.c
		p.guard(func() { p.compareFresh(ctx, fresh.lookup(fmt.Sprintf("p%d", i)), p.root, "") })
	}
}

// restart takes one or all servers down and up again.
func (r *rig) restart(rng *rand.Rand) {
	which := []int{rng.IntN(len(r.cl.Servers))}
	if rng.IntN(3) == 0 {
		which = []int{0, 1, 2}
	}
	for _, i := range which {
		r.cl.Down(i)
	}
	for _, i := range which {
		r.cl.Up(i)
	}
}

// guard ends quietly when the player has failed.
func (p *player) guard(f func()) {
	defer func() {
		if e := recover(); e != nil {
			if _, ok := e.(stopPlaying); !ok {
				panic(e)
			}
		}
	}()
	f()
}

func (p *player) play(ctx context.Context, steps int, shared objcache.Ino) {
	p.guard(func() {
		for range steps {
			p.step(ctx)
			if p.rng.IntN(5) == 0 {
				p.share(ctx, shared)
			}
		}
	})
}

// share works where others do too: any answer of the namespace is right, only the tree must stay one.
func (p *player) share(ctx context.Context, shared objcache.Ino) {
	dirs := []objcache.Ino{shared}
	for i := 0; i < len(dirs) && len(dirs) < 8; i++ {
		es, _, err := p.c.Readdir(ctx, dirs[i], 0, 100)
		if err != nil {
			continue
		}
		for _, e := range es {
			if e.Attr.IsDir() {
				dirs = append(dirs, e.Attr.Ino)
			}
		}
	}
	d, e, n, m := dirs[p.rng.IntN(len(dirs))], dirs[p.rng.IntN(len(dirs))], fmt.Sprintf("d%d", p.rng.IntN(4)), fmt.Sprintf("d%d", p.rng.IntN(4))
	var err error
	switch p.rng.IntN(4) {
	case 0, 1:
		_, err = p.c.Create(ctx, d, n, objcache.NewNode{Mode: objcache.ModeDir | 0o755})
	case 2:
		err = p.c.Rename(ctx, d, n, e, m, 0)
	case 3:
		err = p.c.Rmdir(ctx, d, n)
	}
	switch k := objcache.KindOf(err); {
	case err == nil, k == objcache.NotExist, k == objcache.Exist, k == objcache.NotEmpty, k == objcache.Invalid, k == objcache.Stale:
	default:
		p.failf("in the shared directory: %v", err)
	}
}

// checkTree walks a directory: every inode is found once, and its number of subdirectories is its link count.
func (r *rig) checkTree(top objcache.Ino) {
	r.t.Helper()
	seen := map[objcache.Ino]bool{}
	var walk func(d objcache.Ino)
	walk = func(d objcache.Ino) {
		if seen[d] {
			r.t.Fatalf("directory %d has two names", d)
		}
		seen[d] = true
		names := r.names(d)
		a, err := r.c.Getattr(r.t.Context(), d)
		if err != nil || int(a.Nlink) != 2+len(names) {
			r.t.Errorf("directory %d has %d subdirectories and %d links: %v", d, len(names), a.Nlink, err)
		}
		for _, n := range names {
			c, err := r.c.Lookup(r.t.Context(), d, n)
			if err != nil {
				r.t.Fatalf("%q in directory %d: %v", n, d, err)
			}
			walk(c.Ino)
		}
	}
	walk(top)
}

func compareBucket(t *testing.T, r *rig, ps []*player, seed uint64) {
	t.Helper()
	want := map[string][]byte{}
	for i, p := range ps {
		maps.Copy(want, p.objects(fmt.Sprintf("p%d", i)))
	}
	sorted := slices.Sorted(maps.Keys(want))
	keys := slices.DeleteFunc(r.allKeys(), func(k string) bool { return len(k) > 6 && k[:6] == "shared" })
	if !slices.Equal(keys, sorted) {
		t.Errorf("seed %d: the bucket holds\n%q, should be\n%q", seed, keys, sorted)
	}
	for k, b := range want {
		if slices.Contains(keys, k) && !bytes.Equal(r.object(k), b) {
			t.Errorf("seed %d: object %q differs", seed, k)
		}
	}
}

// compareFresh compares names and bytes with a cluster that knows only the bucket.
func (p *player) compareFresh(ctx context.Context, a objcache.Attr, x *inode, at string) {
	p.r.t.Helper()
	if x.dir == nil {
		if isFile(x) {
			p.sameBytes(ctx, a, x.body, at)
		}
		return
	}
	if got, want := p.r.names(a.Ino), slices.Sorted(maps.Keys(x.dir)); !slices.Equal(got, want) {
		p.failf("directory %q lists %q after a reload, should be %q", at, got, want)
	}
	for n, c := range x.dir {
		b, err := p.c.Lookup(ctx, a.Ino, n)
		if err != nil {
			p.failf("lookup of %q after a reload: %v", path.Join(at, n), err)
		}
		p.compareFresh(ctx, b, c, path.Join(at, n))
	}
}

// seeds are those that every run of all tests looks at, so that a change is judged by what it changed, or the one that OBJCACHE_SEED asks for: new ones
// belong into long runs.
func seeds(t *testing.T, usual ...uint64) []uint64 {
	s := os.Getenv("OBJCACHE_SEED")
	if s == "" {
		return usual
	}
	var own uint64
	if _, err := fmt.Sscan(s, &own); err != nil {
		t.Fatal(err)
	}
	return []uint64{own}
}

// eventually waits for a state.
func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	if !within(45*time.Second, ok) {
		t.Fatal("never came to be")
	}
}

// within waits for a state and reports whether it came.
func within(d time.Duration, ok func() bool) bool {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(d); !ok(); <-tick.C {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}
