package cache

import (
	"hash/crc32"

	"github.com/objcache/objcache"
)

// BlockSize is the unit, in bytes, of presence and of checksums in a cache file.
const BlockSize = 64 << 10

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type bitmap []uint64

func (b bitmap) has(i int64) bool { return i>>6 < int64(len(b)) && b[i>>6]&(1<<(i&63)) != 0 }

func (b *bitmap) set(i int64) {
	for int64(len(*b)) <= i>>6 {
		*b = append(*b, 0)
	}
	(*b)[i>>6] |= 1 << (i & 63)
}

func (b bitmap) clear(i int64) {
	if i>>6 < int64(len(b)) {
		b[i>>6] &^= 1 << (i & 63)
	}
}

// blocks is what is known of a file's blocks: which are present, and the CRC-32C of those in known.
// Invariant: known is a subset of present; crc has an element for every known block.
type blocks struct {
	present, known bitmap
	nPresent       int64
	crc            []uint32
}

func (b *blocks) setPresent(i int64) {
	if !b.present.has(i) {
		b.present.set(i)
		b.nPresent++
	}
}

func (b *blocks) setCRC(i int64, sum uint32) {
	for int64(len(b.crc)) <= i {
		b.crc = append(b.crc, 0)
	}
	b.crc[i] = sum
	b.known.set(i)
}

func (b *blocks) drop(i int64) {
	if b.present.has(i) {
		b.present.clear(i)
		b.nPresent--
	}
	b.known.clear(i)
}

// cut forgets every block from n on.
func (b *blocks) cut(n int64) {
	for i := n; i < int64(len(b.present))*64; i++ {
		b.drop(i)
	}
}

func blockCount(size int64) int64 { return (size + BlockSize - 1) / BlockSize }

// blockRange is the bytes of block i in a file of the given size.
func blockRange(i, size int64) objcache.Range {
	off := i * BlockSize
	return objcache.Range{Off: off, Len: min(BlockSize, size-off)}
}
