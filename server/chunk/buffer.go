package chunk

import (
	"math/bits"
	"sync"
	"unsafe"
)

// buffers holds page-aligned buffers by the logarithm of their size.
var buffers [48]sync.Pool

// getBuffer returns an aligned buffer of n bytes with arbitrary content; give it back with putBuffer.
func getBuffer(n int64) []byte {
	class := bits.Len64(uint64(max(n, pageSize) - 1))
	if b, ok := buffers[class].Get().(*[]byte); ok {
		return (*b)[:n]
	}
	return alignedBuffer(1 << class)[:n]
}

func putBuffer(b []byte) {
	b = b[:cap(b)]
	buffers[bits.Len64(uint64(len(b)-1))].Put(&b)
}

// alignedBuffer returns n zero bytes whose address is a multiple of the page size.
func alignedBuffer(n int) []byte {
	b := make([]byte, n+pageSize)
	skip := -int(uintptr(unsafe.Pointer(&b[0]))) & (pageSize - 1)
	return b[skip : skip+n : skip+n]
}

// aligned reports whether p can go to the disk directly as it is.
func aligned(p []byte) bool {
	return len(p)%pageSize == 0 && uintptr(unsafe.Pointer(unsafe.SliceData(p)))%pageSize == 0
}
