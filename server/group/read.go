package group

import (
	"context"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/failpoint"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
)

// ReadExtents fills p with what the group holds of a chunk's committed bytes from off (in the chunk) as of an inode version, and returns the
// ranges (in the chunk) that come from the file's base or are zeros. clean says that the chunk has no bytes of its own: once an upload has made it
// clean, a base known from before is not its base any more. Superseded when the chunk has changed after that version.
func (g *Group) ReadExtents(ctx context.Context, k objcache.ChunkKey, version uint64, off int64, p []byte) (gaps []objcache.Range, clean bool, err error) {
	if err := g.locks.WaitDecided(ctx, meta.LockChunks(uint64(k.Ino))); err != nil {
		return nil, false, err
	}
	lock := &g.readers[uint64(k.Ino)%uint64(len(g.readers))]
	lock.RLock()
	defer lock.RUnlock()
	c, err := meta.Chunk(g.db, k)
	if err != nil {
		return nil, false, err
	}
	if c.GetVersion() > version {
		return nil, false, objcache.Errorf(objcache.Superseded, "chunk %v is at version %d, not %d", k, c.GetVersion(), version)
	}
	gaps, err = g.readLocked(ctx, k, c.GetExtents(), off, p)
	return gaps, !c.GetDirty(), err
}

// ReadPinned is ReadExtents for the version an upload has pinned. Conflict when that version is not pinned here: what is missing is never "nothing".
func (g *Group) ReadPinned(ctx context.Context, k objcache.ChunkKey, version uint64, off int64, p []byte) ([]objcache.Range, error) {
	if err := g.locks.WaitDecided(ctx, meta.LockChunks(uint64(k.Ino))); err != nil {
		return nil, err
	}
	lock := &g.readers[uint64(k.Ino)%uint64(len(g.readers))]
	lock.RLock()
	defer lock.RUnlock()
	pin, err := g.pin(k, version)
	if err != nil {
		return nil, err
	}
	return g.readLocked(ctx, k, pin.GetExtents(), off, p)
}

// HasBytes reports whether a pinned version of a chunk has bytes of its own. It waits for the pin's transaction to be decided: the upload may be
// faster than the coordinator's word.
func (g *Group) HasBytes(ctx context.Context, k objcache.ChunkKey, version uint64) (bool, error) {
	if err := g.locks.WaitDecided(ctx, meta.LockChunks(uint64(k.Ino))); err != nil {
		return false, err
	}
	pin, err := g.pin(k, version)
	return len(pin.GetExtents()) > 0, err
}

func (g *Group) pin(k objcache.ChunkKey, version uint64) (*record.Pin, error) {
	c, err := meta.Chunk(g.db, k)
	if err != nil {
		return nil, err
	}
	for _, pin := range c.GetPins() {
		if pin.GetVersion() == version {
			return pin, nil
		}
	}
	return nil, objcache.Errorf(objcache.Conflict, "version %d of chunk %v is not pinned", version, k)
}

func (g *Group) readLocked(ctx context.Context, k objcache.ChunkKey, xs []*record.Extent, off int64, p []byte) ([]objcache.Range, error) {
	want := objcache.Range{Off: off, Len: int64(len(p))}
	var gaps []objcache.Range
	at := off
	for _, x := range xs {
		r := objcache.Range{Off: x.GetVisibleOff(), Len: x.GetVisibleLen()}.Intersect(want)
		if r.Len == 0 {
			continue
		}
		if r.Off > at {
			gaps = append(gaps, objcache.Range{Off: at, Len: r.Off - at})
		}
		if err := g.readExtent(ctx, k, x, r, p[r.Off-off:r.End()-off]); err != nil {
			return nil, err
		}
		at = r.End()
	}
	if at < want.End() {
		gaps = append(gaps, objcache.Range{Off: at, Len: want.End() - at})
	}
	return gaps, nil
}

func (g *Group) readExtent(ctx context.Context, k objcache.ChunkKey, x *record.Extent, r objcache.Range, p []byte) error {
	if len(x.GetData()) > 0 {
		copy(p, x.GetData()[r.Off-x.GetStart():r.End()-x.GetStart()])
		return nil
	}
	pl := &record.Placed{}
	ok, err := meta.Get(g.db, placeRow(x.GetId()), pl)
	if err != nil {
		return err
	}
	if !ok {
		return objcache.Errorf(objcache.Corrupt, "extent %d of chunk %v has no place", x.GetId(), k)
	}
	return g.damaged(k, x.GetId(), g.cfg.Bytes.Read(ctx, k, placeOf(pl.GetPlace()), r.Off, p))
}

// free turns dirty bytes into clean ones and gives dead ones back, in the order of the log, when no reader is on them.
func (g *Group) free(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case f := <-g.frees:
			lock := &g.readers[uint64(f.key.Ino)%uint64(len(g.readers))]
			lock.Lock()
			failpoint.Hit(failpoint.FreeBefore)
			g.freeLocked(f)
			lock.Unlock()
		}
	}
}

func (g *Group) freeLocked(f freeing) {
	if f.adopt != nil {
		if err := g.cfg.Bytes.Adopt(f.key, f.adopt.GetEtag(), f.pieces, f.adopt.GetLen()); err != nil {
			g.logger.Debug("uploaded bytes not kept, they are fetched again when needed", "chunk", f.key, "error", err)
		}
	}
	for _, pl := range f.dead {
		g.cfg.Bytes.Free(f.key, pl, f.index)
	}
	if f.goClean {
		g.cfg.Bytes.DropClean(f.key)
	}
}
