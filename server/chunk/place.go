package chunk

import (
	"hash/crc32"

	"github.com/objcache/objcache"
)

// BlockSize is the unit of checksums, presence and in-place allocation, in bytes. Blocks lie on the chunk's own offset grid.
const BlockSize = 64 << 10

const (
	blocksPerChunk = objcache.ChunkSize / BlockSize
	pageSize       = 4 << 10 // alignment of everything written, as O_DIRECT wants it
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Place is where the bytes [Start, Start+Len) of a chunk lie on this server's disk. The caller keeps it, and stores it as it likes.
type Place struct {
	File  uint64   // number of the local file
	Off   int64    // byte offset in that file
	Start int64    // offset in the chunk of the first byte
	Len   int64    // bytes
	CRCs  []uint32 // CRC-32C of each block of the chunk's grid that the place touches, over the place's own bytes only
}

// Range is the place's bytes in the chunk.
func (p Place) Range() objcache.Range { return objcache.Range{Off: p.Start, Len: p.Len} }

// checksums computes CRCs for bytes p that begin at offset start of a chunk.
func checksums(start int64, p []byte) []uint32 {
	sums := make([]uint32, 0, len(p)/BlockSize+2)
	for len(p) > 0 {
		n := min(int64(len(p)), BlockSize-start%BlockSize)
		sums = append(sums, crc32.Checksum(p[:n], castagnoli))
		p, start = p[n:], start+n
	}
	return sums
}

// blockPart is the part of block b that the place holds, in offsets of the chunk.
func (p Place) blockPart(b int64) objcache.Range {
	return p.Range().Intersect(objcache.Range{Off: b * BlockSize, Len: BlockSize})
}

// valid reports whether the place can be one at all, whatever the disk holds.
func (p Place) valid() bool {
	if p.Len <= 0 || p.Start < 0 || p.Off < 0 || p.Start+p.Len > objcache.ChunkSize {
		return false
	}
	return int64(len(p.CRCs)) == (p.Start+p.Len-1)/BlockSize-p.Start/BlockSize+1
}

func alignUp(n, to int64) int64 { return (n + to - 1) / to * to }

// bitmap has a bit for every block of a chunk.
type bitmap [blocksPerChunk / 64]uint64

func (m *bitmap) has(b int64) bool { return m[b/64]&(1<<(b%64)) != 0 }
func (m *bitmap) set(b int64)      { m[b/64] |= 1 << (b % 64) }
func (m *bitmap) clear(b int64)    { m[b/64] &^= 1 << (b % 64) }

// any reports whether one of the blocks [from, to) is set.
func (m *bitmap) any(from, to int64) bool {
	for b := from; b < to; b++ {
		if m.has(b) {
			return true
		}
	}
	return false
}

// count returns the number of blocks set.
func (m *bitmap) count() (n int64) {
	for b := range int64(blocksPerChunk) {
		if m.has(b) {
			n++
		}
	}
	return n
}
