package fuse

import "github.com/objcache/objcache"

const (
	maxWindow   = 32 // regions fetched ahead of a sequential reader
	wholeAfter  = 8  // regions read in sequence after which the rest of the file is fetched
	denseRegion = 4  // regions touched in any order after which a quarter of the file means all of it (a mapped file)
)

// readahead guesses what will be read next. It belongs to the file, not to a descriptor: several processes that share one file help each other.
type readahead struct {
	last    int64 // region read last, plus one
	window  int64
	run     int64 // regions read in sequence
	touched map[int64]struct{}
	whole   bool
}

// next notes a read of regions [from, to) of a file of n regions and returns the regions to fetch in the background.
func (a *readahead) next(from, to, n int64) (start, end int64) {
	if a.whole {
		return 0, 0
	}
	if a.touched == nil {
		a.touched = make(map[int64]struct{})
	}
	for i := from; i < to; i++ {
		a.touched[i] = struct{}{}
	}
	switch {
	case to == a.last:
		return 0, 0 // still inside the region read last
	case from == a.last || from == a.last-1 || a.last == 0 && from == 0:
		a.window = min(max(2*a.window, 2), maxWindow)
		a.run += to - max(from, a.last)
	default:
		a.window, a.run = 0, 0
	}
	a.last = to
	if a.run >= wholeAfter || len(a.touched) >= denseRegion && int64(len(a.touched))*4 >= n {
		a.whole, a.touched = true, nil
		return to, n
	}
	return to, min(to+a.window, n)
}

// readAhead starts background fetches for what a read of r makes likely.
func (f *content) readAhead(r objcache.Range) {
	c := f.hold()
	defer f.fs.store.Release(c)
	if c.Complete() {
		return
	}
	size := c.Size()
	n := (size + regionSize - 1) / regionSize
	r = r.Intersect(objcache.Range{Len: size})
	if r.Len == 0 {
		return
	}
	f.mu.Lock()
	start, end := f.mu.ahead.next(r.Off/regionSize, (r.End()+regionSize-1)/regionSize, n)
	whole := f.mu.ahead.whole
	f.mu.Unlock()
	switch {
	case start >= end && !whole:
	case whole && end == n && start <= end && end > 0:
		f.fetchRest(start, n)
	default:
		for i := start; i < end; i++ {
			f.fly(i, false)
		}
	}
}

// fetchRest brings the whole file, from the reader's place on and then what lies before, a few regions at a time.
func (f *content) fetchRest(from, n int64) {
	f.fs.contents.hold(f)
	f.fs.background(func() {
		defer f.fs.contents.release(f)
		var behind []*flight
		for k := range n {
			if f.fs.ctx.Err() != nil {
				return
			}
			if fl := f.fly((from+k)%n, false); fl != nil {
				behind = append(behind, fl)
			}
			if len(behind) < cap(f.fs.fetches.background) {
				continue
			}
			<-behind[0].done
			if behind[0].err != nil {
				return // readers fetch what they need themselves and see the error
			}
			behind = behind[1:]
		}
	})
}

func (t *contents) hold(f *content) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f.refs++
}
