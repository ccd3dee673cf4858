package fuse

import (
	"context"
	"math"
	"slices"
	"sync"

	"github.com/objcache/objcache"
)

var wholeFile = objcache.Range{Len: math.MaxInt64}

// rangeLock gives out ranges of bytes of one file to whoever writes, stages or flushes them, first come first served: a flush is not
// overtaken by writers for ever. Unlike a mutex it may be waited for with a context and held over the network.
type rangeLock struct {
	mu    sync.Mutex
	queue []*rangeHeld // holders and waiters, oldest first
}

type rangeHeld struct {
	r    objcache.Range
	done chan struct{}
}

// lock waits for everybody before it that holds or wants a part of r. Interrupted when ctx ends.
func (l *rangeLock) lock(ctx context.Context, r objcache.Range) (unlock func(), err error) {
	me := &rangeHeld{r: r, done: make(chan struct{})}
	l.mu.Lock()
	var before []*rangeHeld
	for _, h := range l.queue {
		if h.r.Intersect(r).Len > 0 {
			before = append(before, h)
		}
	}
	l.queue = append(l.queue, me)
	l.mu.Unlock()
	for _, h := range before {
		select {
		case <-h.done:
		case <-ctx.Done():
			l.unlock(me)
			return nil, ctx.Err()
		}
	}
	return func() { l.unlock(me) }, nil
}

func (l *rangeLock) unlock(me *rangeHeld) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.queue, me); i >= 0 {
		l.queue = slices.Delete(l.queue, i, i+1)
		close(me.done)
	}
}
