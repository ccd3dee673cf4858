package bubble

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// Faults counts the faults that were injected, by kind.
type Faults struct {
	mu sync.Mutex
	by map[string]int
}

// Add counts one.
func (f *Faults) Add(kind string) { f.AddN(kind, 1) }

// AddN counts n.
func (f *Faults) AddN(kind string, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.by == nil {
		f.by = map[string]int{}
	}
	f.by[kind] += n
}

// Merge adds the counts of another.
func (f *Faults) Merge(o *Faults) {
	for k, n := range o.Counts() {
		f.AddN(k, n)
	}
}

// Counts is a copy.
func (f *Faults) Counts() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.by)
}

// String lists them, one kind a line.
func (f *Faults) String() string {
	c := f.Counts()
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(c)) {
		fmt.Fprintf(&b, "%8d  %s\n", c[k], k)
	}
	return b.String()
}
