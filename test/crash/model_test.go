//go:build integration

package crash

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// node is a file, directory or symlink as the mount has acknowledged it. Hard links share one.
type node struct {
	dir    map[string]*node
	body   []byte
	target string
	mode   fs.FileMode
}

// worker works in its own directory of the mount and keeps a plain model of what was acknowledged.
type worker struct {
	top  string // directory in the mount
	rng  *rand.Rand
	root *node
	log  []string

	large bool       // it also works on a file of several chunks
	rest  sync.Mutex // held over each operation
	done  atomic.Int64
}

func newWorker(top string, seed, n uint64) *worker {
	return &worker{top: top, rng: rand.New(rand.NewPCG(seed, n)), root: &node{dir: map[string]*node{}}}
}

// place is one name of the model.
type place struct {
	up   *node
	name string
	path string // below the top
	*node
}

func (w *worker) places() []place {
	var out []place
	var walk func(d *node, at string)
	walk = func(d *node, at string) {
		for _, n := range slices.Sorted(maps.Keys(d.dir)) {
			p := place{d, n, filepath.Join(at, n), d.dir[n]}
			out = append(out, p)
			if p.dir != nil {
				walk(p.node, p.path)
			}
		}
	}
	walk(w.root, "")
	return out
}

func (w *worker) pick(ok func(place) bool) (place, bool) {
	all := slices.DeleteFunc(w.places(), func(p place) bool { return !ok(p) })
	if len(all) == 0 {
		return place{}, false
	}
	return all[w.rng.IntN(len(all))], true
}

func isFile(p place) bool { return p.dir == nil && p.target == "" }
func isDir(p place) bool  { return p.dir != nil }
func notDir(p place) bool { return p.dir == nil }
func any1(place) bool     { return true }

// somewhere is a directory and a name in it, which may be taken.
func (w *worker) somewhere() place {
	d := place{node: w.root}
	if p, ok := w.pick(isDir); ok && w.rng.IntN(4) > 0 {
		d = p
	}
	n := fmt.Sprintf("n%d", w.rng.IntN(6))
	return place{d.node, n, filepath.Join(d.path, n), d.dir[n]}
}

func (w *worker) abs(p place) string { return filepath.Join(w.top, p.path) }

func (w *worker) bytes(n int) []byte { return random(w.rng, n) }

// random makes many bytes of a few numbers: with the race detector a loop over each takes longer than what is done with them.
func random(rng *rand.Rand, n int) []byte {
	var key [32]byte
	for i := range key {
		key[i] = byte(rng.Uint32())
	}
	b := make([]byte, n)
	_, _ = rand.NewChaCha8(key).Read(b) // it never fails
	return b
}

func (w *worker) size() int {
	return 1 + w.rng.IntN([]int{100, 5000, 5000, 300 << 10, 300 << 10, 2 << 20}[w.rng.IntN(6)])
}

// step carries out one operation in the mount, and in the model when the mount has acknowledged it.
func (w *worker) step() error {
	w.rest.Lock()
	defer w.rest.Unlock()
	op, do := w.next()
	if do == nil {
		return nil
	}
	w.log = append(w.log, time.Now().Format("15:04:05.000 ")+op)
	if err := do(); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	w.done.Add(1)
	return nil
}

func (w *worker) next() (string, func() error) {
	if w.large && w.rng.IntN(12) == 0 {
		return w.largeFile()
	}
	switch k := w.rng.IntN(100); {
	case k < 20:
		return w.create()
	case k < 40:
		return w.write()
	case k < 46:
		return w.truncate()
	case k < 56:
		return w.mkdir()
	case k < 76:
		return w.rename()
	case k < 82:
		return w.exchange()
	case k < 86:
		return w.link()
	case k < 91:
		return w.unlink()
	case k < 94:
		return w.rmdir()
	case k < 96:
		return w.chmod()
	}
	return w.read()
}

func (w *worker) create() (string, func() error) {
	p := w.somewhere()
	if p.node != nil {
		return "", nil
	}
	if w.rng.IntN(6) == 0 {
		return "symlink " + p.path, func() error {
			err := os.Symlink("to/"+p.name, w.abs(p))
			if err == nil {
				p.up.dir[p.name] = &node{target: "to/" + p.name}
			}
			return err
		}
	}
	b := w.bytes(w.size())
	return fmt.Sprintf("create %s of %d", p.path, len(b)), func() error {
		err := os.WriteFile(w.abs(p), b, 0o640)
		if err == nil {
			p.up.dir[p.name] = &node{body: b, mode: 0o640}
		}
		return err
	}
}

func (w *worker) write() (string, func() error) {
	p, ok := w.pick(isFile)
	if !ok {
		return "", nil
	}
	b, off := w.bytes(w.size()), w.rng.IntN(len(p.body)+1)
	appends := w.rng.IntN(4) == 0
	flags := os.O_WRONLY
	if appends {
		flags, off = flags|os.O_APPEND, len(p.body)
	}
	sync := w.rng.IntN(2) == 0
	return fmt.Sprintf("write %d at %d of %s, append %v", len(b), off, p.path, appends), func() error {
		f, err := os.OpenFile(w.abs(p), flags, 0)
		if err != nil {
			return err
		}
		if appends {
			_, err = f.Write(b)
		} else {
			_, err = f.WriteAt(b, int64(off))
		}
		if err == nil && sync {
			err = f.Sync()
		}
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return err
		}
		if n := off + len(b); n > len(p.body) {
			p.body = append(p.body, make([]byte, n-len(p.body))...)
		}
		copy(p.body[off:], b)
		return nil
	}
}

func (w *worker) truncate() (string, func() error) {
	p, ok := w.pick(isFile)
	if !ok {
		return "", nil
	}
	n := w.rng.IntN(len(p.body) + 4000)
	return fmt.Sprintf("truncate %s to %d", p.path, n), func() error {
		if err := os.Truncate(w.abs(p), int64(n)); err != nil {
			return err
		}
		p.body = append(p.body[:min(n, len(p.body)):min(n, len(p.body))], make([]byte, max(0, n-len(p.body)))...)
		return nil
	}
}

func (w *worker) mkdir() (string, func() error) {
	p := w.somewhere()
	if p.node != nil {
		return "", nil
	}
	return "mkdir " + p.path, func() error {
		err := os.Mkdir(w.abs(p), 0o750)
		if err == nil {
			p.up.dir[p.name] = &node{dir: map[string]*node{}, mode: 0o750}
		}
		return err
	}
}

func below(x, top *node) bool {
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

func (w *worker) rename() (string, func() error) {
	from, ok := w.pick(any1)
	to := w.somewhere()
	switch {
	case !ok, from.dir != nil && below(to.up, from.node), to.node == from.node:
		return "", nil
	case to.node != nil && ((to.dir == nil) != (from.dir == nil) || len(to.dir) > 0):
		return "", nil
	}
	return "rename " + from.path + " to " + to.path, func() error {
		if err := unix.Rename(w.abs(from), w.abs(to)); err != nil { // os.Rename refuses empty directories
			return err
		}
		delete(from.up.dir, from.name)
		to.up.dir[to.name] = from.node
		return nil
	}
}

func (w *worker) exchange() (string, func() error) {
	a, ok := w.pick(any1)
	b, _ := w.pick(any1)
	if !ok || a.node == b.node || a.dir != nil && below(b.up, a.node) || b.dir != nil && below(a.up, b.node) {
		return "", nil
	}
	return "exchange " + a.path + " and " + b.path, func() error {
		if err := unix.Renameat2(unix.AT_FDCWD, w.abs(a), unix.AT_FDCWD, w.abs(b), unix.RENAME_EXCHANGE); err != nil {
			return err
		}
		a.up.dir[a.name], b.up.dir[b.name] = b.node, a.node
		return nil
	}
}

func (w *worker) link() (string, func() error) {
	from, ok := w.pick(isFile)
	to := w.somewhere()
	if !ok || to.node != nil {
		return "", nil
	}
	return "link " + from.path + " as " + to.path, func() error {
		err := os.Link(w.abs(from), w.abs(to))
		if err == nil {
			to.up.dir[to.name] = from.node
		}
		return err
	}
}

func (w *worker) unlink() (string, func() error) {
	p, ok := w.pick(notDir)
	if !ok {
		return "", nil
	}
	return "unlink " + p.path, func() error {
		err := os.Remove(w.abs(p))
		if err == nil {
			delete(p.up.dir, p.name)
		}
		return err
	}
}

func (w *worker) rmdir() (string, func() error) {
	p, ok := w.pick(func(p place) bool { return p.dir != nil && len(p.dir) == 0 })
	if !ok {
		return "", nil
	}
	return "rmdir " + p.path, func() error {
		err := os.Remove(w.abs(p))
		if err == nil {
			delete(p.up.dir, p.name)
		}
		return err
	}
}

func (w *worker) chmod() (string, func() error) {
	p, ok := w.pick(func(p place) bool { return p.target == "" })
	if !ok {
		return "", nil
	}
	mode := fs.FileMode(0o700 + w.rng.IntN(0o100))
	return fmt.Sprintf("chmod %s to %o", p.path, mode), func() error {
		err := os.Chmod(w.abs(p), mode)
		if err == nil {
			p.mode = mode
		}
		return err
	}
}

func (w *worker) read() (string, func() error) {
	p, ok := w.pick(isFile)
	if !ok {
		return "", nil
	}
	return "read " + p.path, func() error { return sameBytes(w.abs(p), p.body) }
}

func sameBytes(path string, want []byte) error {
	got, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if len(got) != len(want) {
		return fmt.Errorf("%s has %d bytes, should have %d", path, len(got), len(want))
	}
	if !bytes.Equal(got, want) {
		i := 0
		for got[i] == want[i] {
			i++
		}
		return fmt.Errorf("%s of %d bytes differs at %d", path, len(got), i)
	}
	return nil
}

// compare looks for everything of the model, and for nothing else, below a directory. Attributes are not to be had from a bucket's files.
func (w *worker) compare(top string, attributes bool) error {
	var walk func(d *node, at string) error
	walk = func(d *node, at string) error {
		entries, err := os.ReadDir(at)
		if err != nil {
			return err
		}
		var got []string
		for _, e := range entries {
			got = append(got, e.Name())
		}
		if want := slices.Sorted(maps.Keys(d.dir)); !slices.Equal(got, want) {
			return fmt.Errorf("directory %s has %q, should have %q", at, got, want)
		}
		for n, x := range d.dir {
			if err := same(filepath.Join(at, n), x, attributes); err != nil {
				return err
			}
			if x.dir != nil {
				if err := walk(x, filepath.Join(at, n)); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return walk(w.root, top)
}

func same(path string, x *node, attributes bool) error {
	st, err := os.Lstat(path)
	switch {
	case err != nil:
		return err
	case st.IsDir() != (x.dir != nil):
		return fmt.Errorf("%s is a %v", path, st.Mode())
	case attributes && x.target == "" && st.Mode().Perm() != x.mode:
		return fmt.Errorf("%s has mode %o, should have %o", path, st.Mode().Perm(), x.mode)
	case x.dir != nil:
		return nil
	case x.target == "":
		return sameBytes(path, x.body)
	case !attributes:
		return sameBytes(path, []byte(x.target)) // the object of a symlink
	}
	got, err := os.Readlink(path)
	if err == nil && got != x.target {
		return fmt.Errorf("symlink %s shows %q, should show %q", path, got, x.target)
	}
	return err
}
