package cache

import (
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/objcache/objcache"
)

// A sidecar says which bytes of a cache file no flush has committed yet. It is mapped shared, so what is in it outlives the
// process (not the node's power). All numbers are in the machine's byte order: a sidecar never leaves its node.
//
//	0    magic "OCDIRTY1"
//	8    ino
//	16   version the bytes were written on
//	24   size of the file
//	32   mtime, ns since 1970
//	40   number of ranges
//	48   directory the file was opened in
//	56   length of the name, then the name (255 bytes)
//	512  ranges: {offset, length}, oldest first, may overlap
//
// Invariant: a range is in its place before the number counts it.
type sidecar struct {
	path  string
	mem   []byte
	count int
}

const (
	sidecarMagic  = "OCDIRTY1"
	sidecarHeader = 512
	sidecarPage   = 4096
	rangeBytes    = 16
)

const (
	atIno = 8 * (iota + 1)
	atVersion
	atSize
	atMtime
	atCount
	atParent
	atNameLen
	atName
)

func createSidecar(path string, ino objcache.Ino, capacity int) (*sidecar, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	n := (sidecarHeader + capacity*rangeBytes + sidecarPage - 1) / sidecarPage * sidecarPage
	// Allocated, not sparse: a store into a mapped hole on a full disk is a SIGBUS.
	if err := unix.Fallocate(int(f.Fd()), 0, 0, int64(n)); err != nil {
		return nil, err
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	s := &sidecar{path: path, mem: mem}
	s.put(atIno, uint64(ino))
	copy(mem, sidecarMagic)
	return s, nil
}

// openSidecar maps what an earlier process left. Invalid: not a sidecar.
func openSidecar(path string) (*sidecar, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size() < sidecarPage {
		return nil, objcache.Errorf(objcache.Invalid, "sidecar %s of %d bytes", path, st.Size())
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	s := &sidecar{path: path, mem: mem}
	n := s.get(atCount)
	if string(mem[:len(sidecarMagic)]) != sidecarMagic || n > uint64(s.capacity()) || s.get(atNameLen) > 255 {
		s.unmap()
		return nil, objcache.Errorf(objcache.Invalid, "sidecar %s has no valid header", path)
	}
	s.count = int(n)
	return s, nil
}

func (s *sidecar) word(at int) *uint64 { return (*uint64)(unsafe.Pointer(&s.mem[at])) }
func (s *sidecar) put(at int, v uint64) {
	atomic.StoreUint64(s.word(at), v)
}
func (s *sidecar) get(at int) uint64 { return atomic.LoadUint64(s.word(at)) }

func (s *sidecar) capacity() int { return (len(s.mem) - sidecarHeader) / rangeBytes }

// add records r; false: the sidecar is full. A range that touches the last one extends it.
func (s *sidecar) add(r objcache.Range) bool {
	if s.count > 0 {
		last := sidecarHeader + (s.count-1)*rangeBytes
		off, n := int64(s.get(last)), int64(s.get(last+8))
		if r.Off >= off && r.Off <= off+n {
			s.put(last+8, uint64(max(n, r.End()-off)))
			return true
		}
	}
	if s.count == s.capacity() {
		return false
	}
	at := sidecarHeader + s.count*rangeBytes
	s.put(at, uint64(r.Off))
	s.put(at+8, uint64(r.Len))
	s.count++
	s.put(atCount, uint64(s.count))
	return true
}

func (s *sidecar) ranges() Ranges {
	var out Ranges
	for i := range s.count {
		at := sidecarHeader + i*rangeBytes
		out = out.Add(objcache.Range{Off: int64(s.get(at)), Len: int64(s.get(at + 8))})
	}
	return out
}

func (s *sidecar) clear() {
	s.count = 0
	s.put(atCount, 0)
}

// replaced returns a sidecar of the same path that holds exactly want; the receiver is gone then. Atomic: a crash leaves the one or the other.
func (s *sidecar) replaced(want Ranges) (*sidecar, error) {
	tmp := s.path + ".new"
	n, err := createSidecar(tmp, objcache.Ino(s.get(atIno)), 2*len(want)+1)
	if err != nil {
		return nil, err
	}
	copy(n.mem[atVersion:atCount], s.mem[atVersion:atCount])
	copy(n.mem[atParent:sidecarHeader], s.mem[atParent:sidecarHeader])
	for _, r := range want {
		n.add(r)
	}
	if err := os.Rename(tmp, s.path); err != nil {
		n.unmap()
		return nil, err
	}
	n.path = s.path
	s.unmap()
	return n, nil
}

func (s *sidecar) setName(dir objcache.Ino, name string) {
	s.put(atNameLen, 0)
	s.put(atParent, uint64(dir))
	n := copy(s.mem[atName:atName+255], name)
	s.put(atNameLen, uint64(n))
}

func (s *sidecar) name() (objcache.Ino, string) {
	return objcache.Ino(s.get(atParent)), string(s.mem[atName : atName+int(s.get(atNameLen))])
}

func (s *sidecar) mtime() time.Time { return time.Unix(0, int64(s.get(atMtime))) }

func (s *sidecar) unmap() {
	if s.mem != nil {
		_ = unix.Munmap(s.mem)
		s.mem = nil
	}
}
