// Package filelock is the algebra of POSIX file locks: which byte ranges of one file who holds, what conflicts, and what a lock or unlock of a range
// leaves behind. It promises that no two owners hold conflicting ranges if every Set was asked of Conflict before. It knows no files, no time, no
// network and no waiting.
package filelock

import (
	"cmp"
	"math"
	"slices"
)

// EOF is the last byte of a range that goes to the end of the file, however long that gets (the kernel's OFFSET_MAX).
const EOF uint64 = math.MaxInt64

// Owner is who holds locks: a session of the cluster, and within it what the kernel calls a lock owner (a process's table of descriptors, or one open
// file description).
type Owner struct{ Session, ID uint64 }

func (o Owner) compare(p Owner) int {
	return cmp.Or(cmp.Compare(o.Session, p.Session), cmp.Compare(o.ID, p.ID))
}

// Lock is one owner's lock of the bytes Start to End, both included.
type Lock struct {
	Owner     Owner
	Exclusive bool
	Start     uint64
	End       uint64
	PID       uint32 // of who asked, as its own node numbers processes; told by F_GETLK and nothing else
}

func (l Lock) overlaps(o Lock) bool { return l.Start <= o.End && o.Start <= l.End }

// Against reports whether two locks cannot be held at the same time.
func (l Lock) Against(o Lock) bool {
	return l.Owner != o.Owner && (l.Exclusive || o.Exclusive) && l.overlaps(o)
}

// Table is all locks of one space (fcntl, or flock) of a file: by owner and start, the ranges of one owner disjoint, and apart or of different kind where
// they touch. A Table is never changed: Set and Unset return another.
type Table []Lock

// Conflict returns the first lock that keeps l from being taken.
func (t Table) Conflict(l Lock) (Lock, bool) {
	for _, h := range t {
		if l.Against(h) {
			return h, true
		}
	}
	return Lock{}, false
}

// Set gives l to its owner, in place of what that owner held of the range. The caller has asked Conflict.
func (t Table) Set(l Lock) Table {
	out := t.Unset(l.Owner, l.Start, l.End)
	at, _ := slices.BinarySearchFunc(out, l, order)
	// A neighbour of the same kind becomes one with it.
	if at < len(out) && out[at].joins(l) && l.End < EOF && out[at].Start == l.End+1 {
		l.End = out[at].End
		out = slices.Delete(out, at, at+1)
	}
	if at > 0 && out[at-1].joins(l) && l.Start > 0 && out[at-1].End == l.Start-1 {
		l.Start = out[at-1].Start
		at--
		out = slices.Delete(out, at, at+1)
	}
	return slices.Insert(out, at, l)
}

func (l Lock) joins(o Lock) bool { return l.Owner == o.Owner && l.Exclusive == o.Exclusive }

func order(a, b Lock) int { return cmp.Or(a.Owner.compare(b.Owner), cmp.Compare(a.Start, b.Start)) }

// Unset takes a range away from an owner; a lock that reaches beyond keeps its rest, on both sides if need be.
func (t Table) Unset(o Owner, start, end uint64) Table {
	out := make(Table, 0, len(t)+2)
	for _, h := range t {
		if h.Owner != o || h.End < start || end < h.Start {
			out = append(out, h)
			continue
		}
		if h.Start < start {
			left := h
			left.End = start - 1
			out = append(out, left)
		}
		if h.End > end {
			right := h
			right.Start = end + 1
			out = append(out, right)
		}
	}
	return out
}

// Of returns what one owner holds.
func (t Table) Of(o Owner) Table {
	var out Table
	for _, h := range t {
		if h.Owner == o {
			out = append(out, h)
		}
	}
	return out
}

// Within cuts the locks to a range.
func (t Table) Within(start, end uint64) Table {
	var out Table
	for _, h := range t {
		if h.Start <= end && start <= h.End {
			h.Start, h.End = max(h.Start, start), min(h.End, end)
			out = append(out, h)
		}
	}
	return out
}

// Without returns the table without a session's locks.
func (t Table) Without(session uint64) Table {
	return slices.DeleteFunc(slices.Clone(t), func(h Lock) bool { return h.Owner.Session == session })
}
