package cache

import (
	"sort"

	"github.com/objcache/objcache"
)

// Ranges is a set of bytes of a file, kept as sorted, disjoint, non-touching runs. The zero value is empty.
type Ranges []objcache.Range

// Add returns the set with r in it; it may reuse the receiver's memory.
func (s Ranges) Add(r objcache.Range) Ranges {
	if r.Len <= 0 {
		return s
	}
	// [i, j) are the runs that overlap or touch r.
	i := sort.Search(len(s), func(k int) bool { return s[k].End() >= r.Off })
	j := i
	for j < len(s) && s[j].Off <= r.End() {
		j++
	}
	if i == j {
		s = append(s, objcache.Range{})
		copy(s[i+1:], s[i:])
		s[i] = r
		return s
	}
	lo, hi := min(r.Off, s[i].Off), max(r.End(), s[j-1].End())
	s[i] = objcache.Range{Off: lo, Len: hi - lo}
	return append(s[:i+1], s[j:]...)
}

// Remove returns a new set without the bytes of r.
func (s Ranges) Remove(r objcache.Range) Ranges {
	if r.Len <= 0 || len(s.Within(r)) == 0 {
		return s
	}
	var out Ranges
	for _, o := range s {
		if cut := o.Intersect(r); cut.Len == 0 {
			out = append(out, o)
			continue
		}
		if o.Off < r.Off {
			out = append(out, objcache.Range{Off: o.Off, Len: r.Off - o.Off})
		}
		if o.End() > r.End() {
			out = append(out, objcache.Range{Off: r.End(), Len: o.End() - r.End()})
		}
	}
	return out
}

// Within returns the parts of the set that lie in r, as a new set.
func (s Ranges) Within(r objcache.Range) Ranges {
	i := sort.Search(len(s), func(k int) bool { return s[k].End() > r.Off })
	var out Ranges
	for ; i < len(s) && s[i].Off < r.End(); i++ {
		if cut := s[i].Intersect(r); cut.Len > 0 {
			out = append(out, cut)
		}
	}
	return out
}

// Outside returns the parts of r that are not in the set.
func (s Ranges) Outside(r objcache.Range) Ranges {
	var out Ranges
	at := r.Off
	for _, o := range s.Within(r) {
		if o.Off > at {
			out = append(out, objcache.Range{Off: at, Len: o.Off - at})
		}
		at = o.End()
	}
	if at < r.End() {
		out = append(out, objcache.Range{Off: at, Len: r.End() - at})
	}
	return out
}

// Covers reports whether every byte of r is in the set.
func (s Ranges) Covers(r objcache.Range) bool {
	i := sort.Search(len(s), func(k int) bool { return s[k].End() > r.Off })
	return r.Len <= 0 || i < len(s) && s[i].Off <= r.Off && s[i].End() >= r.End()
}

// Bytes is the number of bytes in the set.
func (s Ranges) Bytes() int64 {
	var n int64
	for _, r := range s {
		n += r.Len
	}
	return n
}

// Clone returns a copy that shares no memory with the receiver.
func (s Ranges) Clone() Ranges { return append(Ranges(nil), s...) }
