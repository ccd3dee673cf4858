package chunk

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/objcache/objcache"
)

// Held is an extent that metadata names, and where its bytes should lie.
type Held struct {
	ID    uint64
	Key   objcache.ChunkKey
	Place Place
}

// Inspection is what Inspect found in the files of a store that nobody has open.
type Inspection struct {
	Rotten  map[uint64]string // extents whose bytes are not there as they were written, and why
	Unnamed []Unnamed
	Damages []string // what keeps the store from being opened
	Read    int64    // bytes
}

// Unnamed is a file that no extent lies in and that is no clean chunk.
type Unnamed struct {
	Name    string
	Bytes   int64
	Foreign bool // its name is none of the store's
}

// Inspect compares the files in dir with the extents that metadata names, and changes nothing. Without verify it looks at names and lengths only; with it, it
// reads every byte. fsys nil is the operating system's. The error is of listing or opening files.
func Inspect(fsys FS, dir string, held []Held, verify bool) (Inspection, error) {
	if fsys == nil {
		fsys = osFS{}
	}
	in := Inspection{Rotten: map[uint64]string{}}
	names, err := fsys.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		names = nil
	} else if err != nil {
		return in, diskError(err, "list", dir)
	}
	byFile := map[uint64][]Held{}
	for _, h := range held {
		byFile[h.Place.File] = append(byFile[h.Place.File], h)
	}
	slices.Sort(names)
	for _, name := range names {
		id, k, ours := parseName(name)
		hs := byFile[id]
		if ours {
			delete(byFile, id)
		}
		if err := in.file(fsys, filepath.Join(dir, name), k, ours, hs, verify); err != nil {
			return in, err
		}
	}
	for id, hs := range byFile {
		for _, h := range hs {
			in.Rotten[h.ID] = fmt.Sprintf("%d bytes at offset %d are gone: file %016x in %s is missing", h.Place.Len, h.Key.Offset()+h.Place.Start, id, dir)
		}
	}
	s := &Store{fs: fsys, dir: dir}
	if _, err := s.readNextID(); err != nil {
		in.Damages = append(in.Damages, err.Error())
	}
	return in, nil
}

func (in *Inspection) file(fsys FS, path string, k kind, ours bool, held []Held, verify bool) (err error) {
	name := filepath.Base(path)
	if name == idName {
		return nil
	}
	f, err := fsys.Open(path, false, false)
	if errors.Is(err, syscall.EISDIR) {
		in.Unnamed = append(in.Unnamed, Unnamed{Name: path, Foreign: true})
		return nil
	}
	if err != nil {
		return diskError(err, "open", path)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := f.Size()
	if err != nil {
		return diskError(err, "stat", path)
	}
	for _, h := range held {
		if !h.Place.valid() || h.Place.Off+h.Place.Len > size {
			in.Rotten[h.ID] = fmt.Sprintf("%d bytes at offset %d are gone: %s has only %d bytes", h.Place.Len, h.Key.Offset()+h.Place.Start, path, size)
			continue
		}
		if verify {
			in.verify(f, path, h)
		}
	}
	switch clean := ours && k == chunkKind && hasTrailer(f); {
	case len(held) > 0 || clean:
	case ours || strings.HasSuffix(name, ".tmp"):
		in.Unnamed = append(in.Unnamed, Unnamed{Name: path, Bytes: size})
	default:
		in.Unnamed = append(in.Unnamed, Unnamed{Name: path, Bytes: size, Foreign: true})
	}
	return nil
}

func hasTrailer(f File) bool {
	page := getBuffer(pageSize)
	defer putBuffer(page)
	n, _ := f.ReadAt(page, objcache.ChunkSize)
	if n != pageSize {
		return false
	}
	_, c := decodeTrailer(page)
	return c != nil
}

// verify compares the checksum of each block of an extent.
func (in *Inspection) verify(f File, path string, h Held) {
	pl := h.Place
	buf := getBuffer(BlockSize)
	defer putBuffer(buf)
	for b := pl.Start / BlockSize; b*BlockSize < pl.Start+pl.Len; b++ {
		part := pl.blockPart(b)
		at := pl.Off + part.Off - pl.Start
		n, _ := f.ReadAt(buf[:part.Len], at)
		in.Read += int64(n)
		if int64(n) < part.Len || crc32.Checksum(buf[:part.Len], castagnoli) != pl.CRCs[b-pl.Start/BlockSize] {
			in.Rotten[h.ID] = fmt.Sprintf("%d bytes at offset %d are not those that were written (%s at offset %d)", part.Len, h.Key.Offset()+part.Off, path, at)
			return
		}
	}
}
