//go:build integration

package servertest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server"
	"github.com/objcache/objcache/server/client"
	"github.com/objcache/objcache/test/wait"
)

// stamped is content that tells whether it is of one version: every word of it says which.
func stamped(n int, stamp uint64) []byte {
	b := make([]byte, n)
	for i := 0; i+8 <= n; i += 8 {
		binary.BigEndian.PutUint64(b[i:], stamp)
	}
	return b
}

// twoPieces has the same stamp in two chunks, which two groups may own.
type twoPieces struct{ b []byte }

const farOff = objcache.ChunkSize + 1<<16

func (p twoPieces) ReadAt(dst []byte, off int64) (int, error) {
	if off >= farOff {
		off -= farOff
	}
	return copy(dst, p.b[off:]), nil
}

// vandal changes files and names at random.
type vandal struct {
	c      *client.Client
	rng    *rand.Rand
	dirs   []objcache.Ino
	stamps *atomic.Uint64
	ops    int
	failed map[objcache.Kind]int
}

func (v *vandal) name() string      { return fmt.Sprint("n", v.rng.IntN(12)) }
func (v *vandal) dir() objcache.Ino { return v.dirs[v.rng.IntN(len(v.dirs))] }

func (v *vandal) step(ctx context.Context) error {
	d, n := v.dir(), v.name()
	switch v.rng.IntN(10) {
	case 0:
		return v.c.Rename(ctx, d, n, v.dir(), v.name(), 0)
	case 1:
		return v.c.Unlink(ctx, d, n)
	case 2:
		_, err := v.c.Create(ctx, d, "sub-"+n, objcache.NewNode{Mode: objcache.ModeDir | 0o755})
		return err
	case 3:
		return v.c.Rmdir(ctx, d, "sub-"+n)
	case 4:
		return v.c.Rename(ctx, d, "sub-"+n, v.dir(), "sub-"+v.name(), 0)
	}
	a, err := v.c.Lookup(ctx, d, n)
	if errors.Is(err, objcache.NotExist) {
		a, err = v.c.Create(ctx, d, n, objcache.NewNode{Mode: objcache.ModeRegular | 0o644})
	}
	if err != nil {
		return err
	}
	return v.write(ctx, a)
}

// write gives a file a version of its kind, which its number decides: small, middle or in two chunks.
func (v *vandal) write(ctx context.Context, a objcache.Attr) error {
	kind := int(a.Ino % 3)
	switch { // one that came from external storage keeps its size
	case a.Size == 800 || a.Size == 40_000:
		kind = map[int64]int{800: 0, 40_000: 1}[a.Size]
	case a.Size > 0:
		kind = 2
	}
	n := []int{800, 40_000, 24_000}[kind]
	b := stamped(n, v.stamps.Add(1))
	fl := objcache.Flush{Ino: a.Ino, Dirty: []objcache.Range{{Len: int64(n)}}, Src: at{0, b}, Size: int64(n), Mtime: time.Now()}
	if kind == 2 {
		fl.Dirty, fl.Src, fl.Size = append(fl.Dirty, objcache.Range{Off: farOff, Len: int64(n)}), twoPieces{b}, farOff+int64(n)
	}
	_, err := v.c.Flush(ctx, fl)
	return err
}

// whole reads a file's bytes and says what is wrong with them.
func (r *rig) whole(a objcache.Attr) ([]byte, error) {
	p := make([]byte, a.Size)
	if n, err := r.c.ReadAt(r.t.Context(), a.Ino, a.Version, p, 0); err != nil || n != len(p) {
		return nil, fmt.Errorf("%d of %d bytes: %w", n, len(p), err)
	}
	parts := [][]byte{p}
	if len(p) > farOff {
		parts = [][]byte{p[:24_000], p[farOff:]}
	}
	for _, part := range parts {
		if !bytes.Equal(part, stamped(len(part), binary.BigEndian.Uint64(p))) {
			return nil, fmt.Errorf("bytes of two versions in %d bytes", len(p))
		}
	}
	return p, nil
}

// tree walks a directory: contents by path; a directory has none.
func (r *rig) tree(dir objcache.Ino, path string, into map[string]string) {
	r.t.Helper()
	for _, n := range r.names(dir) {
		p := path + "/" + n
		a, err := r.c.Lookup(r.t.Context(), dir, n)
		if err != nil {
			r.t.Errorf("%s is listed and cannot be looked up: %v", p, err)
			continue
		}
		if a.Mode&objcache.ModeMask == objcache.ModeDir {
			into[p] = "directory"
			r.tree(a.Ino, p, into)
			continue
		}
		if a.Size == 0 {
			into[p] = "empty"
			continue
		}
		b, err := r.whole(a)
		if err != nil {
			r.t.Errorf("%s (inode %d, version %d): %v", p, a.Ino, a.Version, err)
			continue
		}
		into[p] = fmt.Sprint(len(b), " bytes ", binary.BigEndian.Uint64(b))
	}
}

// flushed flushes and reports whether everything reached external storage.
func (r *rig) flushed() bool {
	var last *rpc.Progress
	if err := r.c.Work(r.t.Context(), rpc.WorkRequest_FLUSH, 0, func(p *rpc.Progress) { last = p }); err != nil {
		r.t.Fatal(err)
	}
	r.t.Log(last.GetProblems())
	return len(last.GetProblems()) == 0
}

func TestLoss_OfADiskUnderLoadLeavesNoMixAndNoNameThatLeadsNowhere(t *testing.T) {
	seed := uint64(7)
	if s := os.Getenv("OBJCACHE_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = n
	}
	r := newRig(t, 3, func(c *server.Config) { c.FlushInterval = server.Duration(700 * time.Millisecond) })
	var dirs []objcache.Ino
	for i := range 8 {
		dirs = append(dirs, r.mkdir(r.b, fmt.Sprint("d", i)))
	}
	var stamps atomic.Uint64
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	vandals := make([]*vandal, 3)
	for i := range vandals {
		v := &vandal{c: r.cl.Client(), rng: rand.New(rand.NewPCG(seed, uint64(i))), dirs: dirs, stamps: &stamps, failed: map[objcache.Kind]int{}}
		vandals[i] = v
		all.Go(func() {
			for ctx.Err() == nil {
				if err := v.step(ctx); err == nil {
					v.ops++
				} else {
					v.failed[objcache.KindOf(err)]++
				}
			}
		})
	}
	done := func(n uint64) func() bool { return func() bool { return stamps.Load() >= n } }
	wait.Until(t, time.Minute, "a first round of writes", done(200))
	victim := int(seed % 3)
	r.cl.destroy(victim)
	r.cl.Up(victim)
	told := r.restored(victim)
	wait.Until(t, time.Minute, "writes after the loss", done(stamps.Load()+100))
	cancel()
	all.Wait()
	r.restored(victim)
	ops := 0
	for _, v := range vandals {
		ops += v.ops
		t.Logf("%d done, failed by kind: %v", v.ops, v.failed)
	}
	t.Logf("seed %d: server %d destroyed, %d operations succeeded, %d losses", seed, victim, ops, len(told))
	before := map[string]string{}
	r.tree(r.b, "", before)
	wait.Until(t, 2*time.Minute, "a flush without problems", r.flushed) // what waited for the lost server counts as stuck for a while
	after := map[string]string{}
	again := r.reloadWith(3, nil)
	again.tree(again.b, "", after)
	for p, c := range before {
		if after[p] != c {
			t.Errorf("%s was %q and is %q after a reload", p, c, after[p])
		}
	}
	for p, c := range after {
		// An upload that the lost disk alone knew to be ours is kept beside its successor, as somebody else's would be.
		if before[p] == "" && !strings.Contains(p, ".objcache-conflict-") {
			t.Errorf("%s is %q only after a reload", p, c)
		}
	}
}

// A chunk was committed after the last copy was taken. Its older version is in the copy, beside the newer one of another chunk elsewhere.
func TestLoss_OfAChunkThatIsYoungerThanTheCopyTakesItsFileBackWhole(t *testing.T) {
	r := newRig(t, 3, noFlush)
	view := r.cl.Servers[0].View()
	fits := func(ino objcache.Ino) bool {
		return view.OwnerOfInode(ino) == 1 && view.OwnerOfChunk(objcache.ChunkKey{Ino: ino, Index: 1}) == 2
	}
	var ino objcache.Ino
	for i := 0; !fits(ino); i++ {
		ino = r.write(r.b, fmt.Sprint("f", i), nil)
	}
	name := ""
	for _, n := range r.names(r.b) {
		if a := r.lookup(n); a.Ino == ino {
			name = n
		}
	}
	both := func(stamp uint64) {
		_, err := r.c.Flush(t.Context(), objcache.Flush{
			Ino: ino, Dirty: []objcache.Range{{Len: 24_000}, {Off: farOff, Len: 24_000}}, Src: twoPieces{stamped(24_000, stamp)}, Size: farOff + 24_000, Mtime: time.Now(),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	both(1)
	r.flush()
	r.mirrored()
	r.cl.Down(2) // it keeps the copy of server 1
	both(2)
	r.cl.destroy(1)
	r.cl.Up(2)
	r.cl.Up(1)
	told := r.restored(1)
	if _, ok := told["data/"+name]; !ok {
		t.Errorf("the loss was not told: %v", told)
	}
	b, err := r.whole(r.lookup(name))
	if err != nil {
		t.Fatal(err)
	}
	if s := binary.BigEndian.Uint64(b); s != 1 {
		t.Errorf("the file is of version %d, 1 is what external storage has", s)
	}
}
