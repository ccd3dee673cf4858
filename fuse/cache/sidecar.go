package cache

import (
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/failpoint"
)

// A sidecar says which bytes of a cache file no flush has committed yet. It is mapped shared, so what is in it outlives the
// process (not the node's power). All numbers are in the machine's byte order: a sidecar never leaves its node.
// It is a slot of a file that many share (slots.go), or, with more ranges than a slot holds, a file of its own.
//
//	0    magic "OCDIRTY1"
//	8    ino
//	16   version the bytes were written on
//	24   size of the file
//	32   mtime, ns since 1970
//	40   number of ranges
//	48   directory the file was opened in
//	56   length of the name, then the name (255 bytes)
//	320  SEQ of the cache file INO-SEQ
//	512  ranges: {offset, length}, oldest first, may overlap
//
// Invariant: a range is in its place before the number counts it.
type sidecar struct {
	path  string // of the cache file
	mem   []byte
	count int
	slots *slots // whose slot mem is; nil: mem is a mapped file
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

const atSeq = 320

// newSidecar writes the header of an empty sidecar into mem.
func newSidecar(mem []byte, path string, ino objcache.Ino, seq uint64) *sidecar {
	s := &sidecar{path: path, mem: mem}
	s.put(atCount, 0)
	s.put(atIno, uint64(ino))
	s.put(atSeq, seq)
	copy(mem, sidecarMagic)
	return s
}

// createSidecar makes a sidecar in a file of its own.
func createSidecar(file, path string, ino objcache.Ino, seq uint64, capacity int) (*sidecar, error) {
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	mem, err := mapAllocated(f, (sidecarHeader+capacity*rangeBytes+sidecarPage-1)/sidecarPage*sidecarPage)
	if err != nil {
		return nil, err
	}
	return newSidecar(mem, path, ino, seq), nil
}

// mapAllocated maps n bytes of f, shared. They are allocated, not sparse: a store into a mapped hole on a full disk is a SIGBUS.
func mapAllocated(f *os.File, n int) ([]byte, error) {
	if err := unix.Fallocate(int(f.Fd()), 0, 0, int64(n)); err != nil {
		return nil, err
	}
	return unix.Mmap(int(f.Fd()), 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

// openSidecar maps what an earlier process left beside a cache file. Invalid: not a sidecar.
func openSidecar(path string) (*sidecar, error) {
	mem, err := mapFile(path + sidecarSuffix)
	if err != nil {
		return nil, err
	}
	s := &sidecar{path: path, mem: mem}
	if !s.valid() {
		s.drop()
		return nil, objcache.Errorf(objcache.Invalid, "sidecar of %s has no valid header", path)
	}
	return s, nil
}

// mapFile maps a whole file of at least one page, shared.
func mapFile(path string) ([]byte, error) {
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
		return nil, objcache.Errorf(objcache.Invalid, "%s is %d bytes long", path, st.Size())
	}
	return unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

// valid checks the header of a sidecar that an earlier process left, and takes over its count.
func (s *sidecar) valid() bool {
	n := s.get(atCount)
	if string(s.mem[:len(sidecarMagic)]) != sidecarMagic || n > uint64(s.capacity()) || s.get(atNameLen) > 255 {
		return false
	}
	s.count = int(n)
	return true
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

// replaced returns a sidecar in a file of its own that holds exactly want; the receiver is gone then. Atomic: a crash leaves the one, or the other, or
// both, and then the file counts.
func (s *sidecar) replaced(want Ranges) (*sidecar, error) {
	file := s.path + sidecarSuffix
	tmp := file + ".new"
	n, err := createSidecar(tmp, s.path, objcache.Ino(s.get(atIno)), s.get(atSeq), 2*len(want)+1)
	if err != nil {
		return nil, err
	}
	copy(n.mem[atVersion:atCount], s.mem[atVersion:atCount])
	copy(n.mem[atParent:atSeq], s.mem[atParent:atSeq])
	for _, r := range want {
		n.add(r)
	}
	failpoint.Hit(failpoint.SidecarReplaced)
	if err := os.Rename(tmp, file); err != nil {
		n.unmap()
		return nil, err
	}
	s.drop()
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

// drop ends the use of the memory: a slot is free for others, a file is unmapped, and removed by whoever owns its name.
func (s *sidecar) drop() {
	if s.slots != nil && s.mem != nil {
		s.slots.free(s.mem)
		s.mem = nil
		return
	}
	s.unmap()
}

func (s *sidecar) unmap() {
	if s.mem != nil {
		_ = unix.Munmap(s.mem)
		s.mem = nil
	}
}
