package chunk

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/failpoint"
)

// The trailer of a clean file, one page behind the chunk's bytes, little endian:
//
//	0     16   "objcache clean 1"
//	16    8    ino
//	24    4    index of the chunk
//	28    4    number of the block that is not whole, 0xffffffff for none
//	32    4    its length in bytes
//	36    4    length of the tag in bytes
//	40    32   which blocks are present, lowest bit first
//	72    1024 CRC-32C of each block present
//	1096  ...  tag
//	4092  4    CRC-32C of the page before it
//
// It is written now and then without any fsync. It may name blocks that a crash lost: their checksums tell.
const (
	trailerMagic = "objcache clean 1"
	trailerTag   = 1096
	trailerEvery = 16 // blocks filled between two trailers
)

func encodeTrailer(key objcache.ChunkKey, c *cleanState) []byte {
	b := alignedBuffer(pageSize)
	copy(b, trailerMagic)
	le := binary.LittleEndian
	le.PutUint64(b[16:], uint64(key.Ino))
	le.PutUint32(b[24:], key.Index)
	le.PutUint32(b[28:], uint32(c.short))
	le.PutUint32(b[32:], uint32(c.shortLen))
	le.PutUint32(b[36:], uint32(len(c.tag)))
	for i, w := range c.present {
		le.PutUint64(b[40+8*i:], w)
	}
	for i, sum := range c.crcs {
		le.PutUint32(b[72+4*i:], sum)
	}
	copy(b[trailerTag:], c.tag)
	le.PutUint32(b[pageSize-4:], crc32.Checksum(b[:pageSize-4], castagnoli))
	return b
}

// decodeTrailer returns nil when the page is not a trailer that verifies.
func decodeTrailer(b []byte) (objcache.ChunkKey, *cleanState) {
	le := binary.LittleEndian
	if len(b) != pageSize || string(b[:16]) != trailerMagic || crc32.Checksum(b[:pageSize-4], castagnoli) != le.Uint32(b[pageSize-4:]) {
		return objcache.ChunkKey{}, nil
	}
	tag := int64(le.Uint32(b[36:]))
	c := &cleanState{short: int64(int32(le.Uint32(b[28:]))), shortLen: int64(le.Uint32(b[32:]))}
	if tag > maxTag || c.short >= blocksPerChunk || c.shortLen > BlockSize {
		return objcache.ChunkKey{}, nil
	}
	c.tag = string(b[trailerTag : trailerTag+tag])
	for i := range c.present {
		c.present[i] = le.Uint64(b[40+8*i:])
	}
	for i := range c.crcs {
		c.crcs[i] = le.Uint32(b[72+4*i:])
	}
	c.taken = pageSize + c.present.count()*BlockSize
	return objcache.ChunkKey{Ino: objcache.Ino(le.Uint64(b[16:])), Index: le.Uint32(b[24:])}, c
}

// trailerDue reports whether enough blocks came since the last trailer, or the last one did.
func (s *Store) trailerDue(f *file) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := f.clean
	return c != nil && !c.saving && c.unsaved > 0 && (c.unsaved >= trailerEvery || c.present.count() == blocksPerChunk || c.short >= 0)
}

// saveTrailer writes what is present now. A failure costs the cache of this file after a restart, nothing else.
func (s *Store) saveTrailer(f *file) {
	s.mu.Lock()
	c := f.clean
	if c == nil || c.saving || f.removing {
		s.mu.Unlock()
		return
	}
	c.saving, c.unsaved = true, 0
	page := encodeTrailer(f.key, c)
	s.mu.Unlock()
	h, err := s.open(f, false)
	if h != nil {
		failpoint.Hit(failpoint.ChunkTrailerBefore)
		_, err = h.WriteAt(page, objcache.ChunkSize)
		failpoint.Hit(failpoint.ChunkTrailerAfter)
		s.handles.release(h)
	}
	if err != nil {
		s.log.Warn("a trailer could not be written", "file", f.name(s.dir), "err", err)
	}
	s.mu.Lock()
	c.saving = false
	s.mu.Unlock()
}

// saveTrailers writes all that are due at Close.
func (s *Store) saveTrailers() {
	s.mu.Lock()
	var due []*file
	for _, f := range s.mu.clean {
		if f.clean.unsaved > 0 {
			due = append(due, f)
		}
	}
	s.mu.Unlock()
	for _, f := range due {
		s.saveTrailer(f)
	}
}
