package chunk

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"github.com/objcache/objcache"
	"golang.org/x/sys/unix"
)

// osFS is the operating system's disk.
type osFS struct{}

func (osFS) MkdirAll(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return osFS{}.SyncDir(filepath.Dir(dir))
}

func (osFS) Open(name string, create, direct bool) (File, error) {
	flags := os.O_RDWR
	if create {
		flags |= os.O_CREATE
	}
	if direct {
		flags |= unix.O_DIRECT
	}
	f, err := os.OpenFile(name, flags, 0o644)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (osFS) Rename(from, to string) error { return os.Rename(from, to) }
func (osFS) Remove(name string) error     { return os.Remove(name) }

func (osFS) List(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	names, err := d.Readdirnames(-1)
	return names, errors.Join(err, d.Close())
}

func (osFS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Direct tries it out: tmpfs and some overlays refuse at open, others at the first write.
func (fs osFS) Direct(dir string) bool {
	name := filepath.Join(dir, "probe.tmp")
	f, err := fs.Open(name, true, true)
	if err == nil {
		_, err = f.WriteAt(alignedBuffer(pageSize), 0)
		err = errors.Join(err, f.Close())
	}
	_ = os.Remove(name) // may not exist
	return err == nil
}

type osFile struct{ *os.File }

func (f osFile) Sync() error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); err != unix.EINTR {
			return err
		}
	}
}

// Allocate falls back to nothing where the file system cannot: writes then find out about a full disk.
func (f osFile) Allocate(off, n int64) error {
	for {
		switch err := unix.Fallocate(int(f.Fd()), 0, off, n); err {
		case unix.EINTR:
		case unix.EOPNOTSUPP:
			return nil
		default:
			return err
		}
	}
}

func (f osFile) Size() (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

// diskError gives an error of the disk its kind.
func diskError(err error, op, name string) error {
	kind := objcache.IO
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		kind = objcache.NoSpace
	}
	return objcache.Errorf(kind, "%s %s: %w", op, name, err)
}
