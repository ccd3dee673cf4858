package chunk

import (
	"errors"
	"io"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// FS is the disk as this room needs it. Tests put crashes and failures here.
type FS interface {
	MkdirAll(dir string) error
	// Open opens a file for reading and writing. direct asks for I/O past the page cache: offsets, lengths and buffers are then multiples of 4 KiB.
	Open(name string, create, direct bool) (File, error)
	Rename(from, to string) error
	Remove(name string) error
	List(dir string) ([]string, error)
	// SyncDir makes the names in dir durable.
	SyncDir(dir string) error
	// Direct reports whether files below dir can be opened with direct.
	Direct(dir string) bool
}

// File is an open file. All methods may be called at the same time.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Sync makes written bytes durable (fdatasync).
	Sync() error
	// Allocate reserves disk space for [off, off+n) and makes the file at least that long.
	Allocate(off, n int64) error
	// Size is the file's length in bytes.
	Size() (int64, error)
}

// NewFS makes an FS of one of pebble's, so that a test can crash the log, the metadata and the chunks of a server at one instant.
func NewFS(from vfs.FS) FS { return pebbleFS{from} }

type pebbleFS struct{ fs vfs.FS }

func (p pebbleFS) MkdirAll(dir string) error {
	if err := p.fs.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return p.SyncDir(p.fs.PathDir(dir))
}

func (p pebbleFS) Open(name string, create, _ bool) (File, error) {
	_, err := p.fs.Stat(name)
	if errors.Is(err, fs.ErrNotExist) && create {
		f, err := p.fs.Create(name, vfs.WriteCategoryUnspecified)
		if err != nil {
			return nil, err
		}
		if err := f.Close(); err != nil { // created files cannot be read
			return nil, err
		}
	} else if err != nil {
		return nil, err
	}
	f, err := p.fs.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, err
	}
	return pebbleFile{f}, nil
}

func (p pebbleFS) Rename(from, to string) error      { return p.fs.Rename(from, to) }
func (p pebbleFS) Remove(name string) error          { return p.fs.Remove(name) }
func (p pebbleFS) List(dir string) ([]string, error) { return p.fs.List(dir) }
func (p pebbleFS) Direct(string) bool                { return false }

func (p pebbleFS) SyncDir(dir string) error {
	d, err := p.fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

type pebbleFile struct{ vfs.File }

func (f pebbleFile) Sync() error                 { return f.SyncData() }
func (f pebbleFile) Allocate(off, n int64) error { return f.Preallocate(off, n) }

func (f pebbleFile) Size() (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}
