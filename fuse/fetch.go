package fuse

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/fuse/cache"
)

// regionSize is the unit of fetching, in bytes. A region is fetched once however many readers want it.
const regionSize = 1 << 20

// supersededRetries bounds how often one fetch follows a file that others keep changing before the reader starts again.
const supersededRetries = 16

type flightKey struct {
	c      *cache.File
	region int64
}

// flight is one fetch of a region. It belongs to no reader: one that is interrupted leaves it to the others.
type flight struct {
	done chan struct{}
	err  error // set before done is closed
}

// fetchSlots bounds what is in flight for the whole mount, and with it the memory. Background fetches leave two slots to readers that wait.
type fetchSlots struct {
	all, background chan struct{}
	buffers         sync.Pool
}

// maxFetches keeps S3 busy: so many regions make up a few of the segments that servers ask for. A slot costs about four times its region, in buffers of
// gRPC. Of what a plain client with eight ranged GETs got from an S3 of 200 MiB/s and 20 ms, a reader got 0.37 with 8 slots, 0.79 with 24, 0.87 with 48.
const maxFetches = 32

func newFetchSlots(budget int64) *fetchSlots {
	n := int(min(max(budget/8/regionSize, 3), maxFetches))
	return &fetchSlots{all: make(chan struct{}, n), background: make(chan struct{}, n-2),
		buffers: sync.Pool{New: func() any { b := make([]byte, regionSize); return &b }}}
}

func (s *fetchSlots) take(ctx context.Context, waited bool) (giveBack func(), err error) {
	if !waited {
		if err := put(ctx, s.background); err != nil {
			return nil, err
		}
	}
	if err := put(ctx, s.all); err != nil {
		if !waited {
			<-s.background
		}
		return nil, err
	}
	return func() {
		<-s.all
		if !waited {
			<-s.background
		}
	}, nil
}

func put(ctx context.Context, c chan struct{}) error {
	select {
	case c <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// fly returns the flight that brings a region, starting it if needed; nil when nothing of it is missing. waited: a reader waits for it.
func (f *content) fly(region int64, waited bool) *flight {
	c := f.hold()
	r := objcache.Range{Off: region * regionSize, Len: regionSize}
	if len(c.Missing(r)) == 0 {
		f.fs.store.Release(c)
		return nil
	}
	key := flightKey{c, region}
	f.mu.Lock()
	if fl := f.mu.flights[key]; fl != nil {
		f.mu.Unlock()
		f.fs.store.Release(c)
		return fl
	}
	fl := &flight{done: make(chan struct{})}
	f.mu.flights[key] = fl
	f.mu.Unlock()
	f.fs.contents.hold(f) // it may switch the version after the last close
	f.fs.background(func() {
		defer f.fs.contents.release(f)
		defer f.fs.store.Release(c)
		fl.err = f.bring(c, r, waited)
		f.mu.Lock()
		if f.mu.flights[key] == fl {
			delete(f.mu.flights, key)
		}
		f.mu.Unlock()
		close(fl.done)
	})
	return fl
}

// bring fetches what is missing of r into c. When c's version is superseded it switches the file instead; the reader then starts again.
func (f *content) bring(c *cache.File, r objcache.Range, waited bool) error {
	ctx := f.fs.ctx
	giveBack, err := f.fs.fetches.take(ctx, waited)
	if err != nil {
		return err
	}
	buf := f.fs.fetches.buffers.Get().(*[]byte)
	err = f.pull(ctx, c, r, *buf)
	f.fs.fetches.buffers.Put(buf)
	giveBack()
	if errors.Is(err, objcache.Superseded) {
		return f.follow(ctx, c)
	}
	return err
}

func (f *content) pull(ctx context.Context, c *cache.File, r objcache.Range, buf []byte) error {
	for _, m := range c.Missing(r) {
		version := c.Version()
		p := buf[:m.Len]
		n, err := f.fs.backend.ReadAt(ctx, f.ino, version, p, m.Off)
		if err != nil {
			return err
		}
		clear(p[n:]) // what this node has written behind the committed end
		f.fs.count.fetchedBytes.Add(uint64(n))
		if err := c.Fill(version, m.Off, p); err != nil {
			return err
		}
	}
	return nil
}

// follow gets the attributes of the newer version and switches to it.
func (f *content) follow(ctx context.Context, c *cache.File) error {
	before := c.Version()
	for range supersededRetries {
		a, err := f.fs.backend.Getattr(ctx, f.ino)
		if err != nil {
			return err
		}
		if err := f.adopt(ctx, a); err != nil {
			return err
		}
		if a.Version > before || c.Version() > before {
			return nil
		}
		// The answer was older than the refusal; a moment later it is not.
		t := time.NewTimer(time.Millisecond)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		}
	}
	return objcache.Errorf(objcache.IO, "inode %d stays superseded at version %d", f.ino, before)
}
