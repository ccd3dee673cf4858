package chunk

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io/fs"
	"path/filepath"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/failpoint"
)

// File numbers are never used again, also after a crash, so that a stale Place can never name another file's bytes. They are reserved in
// blocks: the file "next" holds the first number that no file has.
const (
	idName  = "next"
	idBlock = 1 << 12
)

// readNextID returns the first free number, 1 in an empty directory.
func (s *Store) readNextID() (uint64, error) {
	path := filepath.Join(s.dir, idName)
	f, err := s.fs.Open(path, false, false)
	if errors.Is(err, fs.ErrNotExist) {
		return 1, nil
	}
	if err != nil {
		return 0, diskError(err, "open", path)
	}
	var b [12]byte
	_, err = f.ReadAt(b[:], 0)
	if err = errors.Join(err, f.Close()); err != nil || crc32.Checksum(b[:8], castagnoli) != binary.LittleEndian.Uint32(b[8:]) {
		return 0, objcache.Errorf(objcache.Corrupt, "%s: %x: %w", path, b, err)
	}
	return binary.LittleEndian.Uint64(b[:]), nil
}

// reserveIDs makes all numbers below next durable as used.
func (s *Store) reserveIDs(next uint64) error {
	path := filepath.Join(s.dir, idName)
	b := binary.LittleEndian.AppendUint64(nil, next)
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	f, err := s.fs.Open(path+".tmp", true, false)
	if err != nil {
		return diskError(err, "create", path)
	}
	_, err = f.WriteAt(b, 0)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		failpoint.Hit(failpoint.ChunkNumbersBefore)
		err = s.fs.Rename(path+".tmp", path)
	}
	if err == nil {
		err = s.fs.SyncDir(s.dir)
	}
	if err != nil {
		return diskError(err, "write", path)
	}
	failpoint.Hit(failpoint.ChunkNumbersAfter)
	return nil
}

// newID returns a number that no file had before.
func (s *Store) newID() (uint64, error) {
	s.ids.Lock()
	defer s.ids.Unlock() // held over I/O once in idBlock calls
	if s.ids.next == s.ids.reserved {
		if err := s.reserveIDs(s.ids.reserved + idBlock); err != nil {
			return 0, err
		}
		s.ids.reserved += idBlock
	}
	s.ids.next++
	return s.ids.next - 1, nil
}
