package cache

import (
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// disk is the local file of a cached one. It is made at the first write, so that a file that is only opened, or is empty, costs none, and it is closed
// while nobody holds the cached file, so that the number of cached files is not bounded by that of descriptors. Whoever uses it holds a reference.
type disk struct {
	store *Store
	path  string

	mu   sync.Mutex // a leaf
	os   *os.File   // nil: not made, or idle
	made bool
	size int64 // of the local file, or what it will have
	lent bool  // the kernel has had the descriptor: a mapping may outlive every descriptor and this process, so the file is never used again
	dead bool  // discarded

	gone atomic.Bool // the name has been removed, or must be once the file is made
}

// open returns the descriptor, making the file if there is none.
func (d *disk) open() (*os.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.openLocked()
}

func (d *disk) openLocked() (*os.File, error) {
	if d.os != nil {
		return d.os, nil
	}
	if d.made {
		f, err := os.OpenFile(d.path, os.O_RDWR, 0)
		d.os = f
		return f, err
	}
	f, err := d.store.spares.file(d.path)
	if err != nil {
		return nil, err
	}
	if d.size > 0 {
		if err := f.Truncate(d.size); err != nil {
			_ = f.Close()
			_ = os.Remove(d.path)
			return nil, err
		}
	}
	d.os, d.made = f, true
	if d.gone.Load() {
		_ = os.Remove(d.path)
	}
	return f, nil
}

// lend returns the descriptor for the kernel to keep.
func (d *disk) lend() (*os.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lent = true
	return d.openLocked()
}

// idle closes the descriptor. Nobody holds the cached file.
func (d *disk) idle() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.os != nil && !d.gone.Load() {
		_ = d.os.Close()
		d.os = nil
	}
}

// write writes p at off; on a full disk it has clean files make room. After an error the first n bytes may be there.
func (d *disk) write(p []byte, off int64) (n int, err error) {
	err = d.store.roomFor(func() error {
		f, err := d.open()
		if err != nil {
			return err
		}
		now, err := writeAt(f, p, off)
		n = max(n, now)
		d.mu.Lock()
		defer d.mu.Unlock()
		d.size = max(d.size, off+int64(n))
		return err
	})
	return n, err
}

// writeAt is f.WriteAt, which does not say how much it wrote before an error.
func writeAt(f *os.File, p []byte, off int64) (n int, err error) {
	for n < len(p) {
		m, err := unix.Pwrite(int(f.Fd()), p[n:], off+int64(n))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return n, &os.PathError{Op: "pwrite", Path: f.Name(), Err: err}
		case m == 0:
			return n, io.ErrShortWrite
		default:
			n += m
		}
	}
	return n, nil
}

func (d *disk) ReadAt(p []byte, off int64) (int, error) {
	f, err := d.open()
	if err != nil {
		return 0, err
	}
	return f.ReadAt(p, off)
}

// truncate gives the local file a size; of one that is not made yet it is only noted.
func (d *disk) truncate(size int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if size == d.size {
		return nil
	}
	if d.made {
		f, err := d.openLocked()
		if err != nil {
			return err
		}
		if err := f.Truncate(size); err != nil {
			return err
		}
	}
	d.size = size
	return nil
}

// unlink removes the name; whoever holds the cached file goes on using the local one, which may be idle so far.
func (d *disk) unlink() {
	if d.gone.Swap(true) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.made {
		return
	}
	if !d.dead {
		_, _ = d.openLocked() // a failure is that of the next use
	}
	_ = os.Remove(d.path)
}

// discard closes the file; nobody uses it any more. With unlink its name goes too.
func (d *disk) discard(unlink bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dead = true
	named := d.made && !d.gone.Load()
	if unlink && named {
		d.gone.Store(true)
		if d.lent || !d.store.spares.put(d.path) {
			_ = os.Remove(d.path)
		}
	}
	if d.os != nil {
		_ = d.os.Close()
		d.os = nil
	}
}

// maxSpares is how many files wait to be used again.
const maxSpares = 1024

// spares are empty local files that are used again under another name: ext4 takes up to a millisecond to make a file while many have just been removed,
// for it steps over each inode that was freed in the last seconds.
type spares struct {
	mu    sync.Mutex
	paths []string
}

// put takes over a file that is not needed any more; false: it is the caller's to remove.
func (s *spares) put(path string) bool {
	s.mu.Lock()
	full := len(s.paths) >= maxSpares
	s.mu.Unlock()
	if full || os.Truncate(path, 0) != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paths = append(s.paths, path)
	return true
}

// file makes an empty file, or renames a spare one.
func (s *spares) file(path string) (*os.File, error) {
	s.mu.Lock()
	old := ""
	if n := len(s.paths); n > 0 {
		old = s.paths[n-1]
		s.paths = s.paths[:n-1]
	}
	s.mu.Unlock()
	if old != "" && os.Rename(old, path) == nil {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			_ = os.Remove(path) // so that the name can be made once there are descriptors again
		}
		return f, err
	}
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}
