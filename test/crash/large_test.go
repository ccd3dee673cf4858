//go:build integration

package crash

import (
	"fmt"
	"os"

	"github.com/objcache/objcache"
)

// largeSize is a file of two chunks, the second short, so that its upload has parts at two groups.
const largeSize = objcache.ChunkSize + 300<<10

func isLarge(p place) bool { return isFile(p) && len(p.body) > objcache.ChunkSize }

// largeFile works on a file of several chunks; there is at most one. A write into one of its chunks lets the other be copied from the object, a new name
// lets all of it be.
func (w *worker) largeFile() (string, func() error) {
	p, ok := w.pick(isLarge)
	if !ok {
		return w.newLarge()
	}
	switch w.rng.IntN(6) {
	case 0:
		return "read " + p.path, func() error { return sameBytes(w.abs(p), p.body) }
	case 1:
		to := fmt.Sprintf("large%d", w.rng.IntN(3))
		if w.root.dir[to] != nil {
			return "", nil
		}
		return "rename " + p.path + " to " + to, func() error {
			if err := os.Rename(w.abs(p), w.abs(place{path: to})); err != nil {
				return err
			}
			delete(p.up.dir, p.name)
			w.root.dir[to] = p.node
			return nil
		}
	case 2:
		return "unlink " + p.path, func() error {
			err := os.Remove(w.abs(p))
			if err == nil {
				delete(p.up.dir, p.name)
			}
			return err
		}
	}
	b, off := w.bytes(64<<10), w.rng.IntN(len(p.body)-64<<10)
	return fmt.Sprintf("write %d at %d of %s, which is large", len(b), off, p.path), func() error {
		f, err := os.OpenFile(w.abs(p), os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteAt(b, int64(off))
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err == nil {
			copy(p.body[off:], b)
		}
		return err
	}
}

func (w *worker) newLarge() (string, func() error) {
	p := place{node: w.root, name: "large", path: "large"}
	if w.root.dir[p.name] != nil {
		return "", nil
	}
	b := w.bytes(largeSize)
	return "create large", func() error {
		err := os.WriteFile(w.abs(p), b, 0o640)
		if err == nil {
			w.root.dir[p.name] = &node{body: b, mode: 0o640}
		}
		return err
	}
}
