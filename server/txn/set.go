package txn

import "iter"

// Set is a set of participants by their place in a list. Up to 64 of them it is one word; copies of a larger one share memory.
type Set struct {
	low  uint64
	more []uint64
}

// all is {0, ..., n-1}.
func all(n int) Set {
	var s Set
	if n >= 64 {
		s.more = make([]uint64, n/64)
	}
	for i := range n {
		s.add(i)
	}
	return s
}

func (s *Set) word(i int) *uint64 {
	if i < 64 {
		return &s.low
	}
	return &s.more[i/64-1]
}

func (s *Set) add(i int)    { *s.word(i) |= 1 << (i % 64) }
func (s *Set) remove(i int) { *s.word(i) &^= 1 << (i % 64) }

// Has reports whether i is in the set.
func (s *Set) Has(i int) bool { return *s.word(i)&(1<<(i%64)) != 0 }

// Empty reports whether nothing is in the set.
func (s *Set) Empty() bool {
	for _, w := range s.more {
		if w != 0 {
			return false
		}
	}
	return s.low == 0
}

// All yields the members in their order.
func (s *Set) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := range 64 * (1 + len(s.more)) {
			if s.Has(i) && !yield(i) {
				return
			}
		}
	}
}
