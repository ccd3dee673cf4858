package transfer

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/external"
	"github.com/objcache/objcache/server/record"
	"github.com/objcache/objcache/server/ring"
)

// Sizes of what one GET asks for, bytes: a large request is a sequential reader, a small one is not.
const (
	largeSegment = 4 << 20
	smallSegment = 256 << 10
	block        = 64 << 10
)

// maxFlights bounds the memory of fetches under way, in segments.
const maxFlights = 24

// Read returns bytes of a chunk as of a version of its file. It is short only at the end of the file.
func (t *Transfer) Read(ctx context.Context, r *rpc.ReadRequest) ([]byte, error) {
	k := objcache.ChunkKey{Ino: objcache.Ino(r.GetIno()), Index: r.GetChunk()}
	if !t.cfg.Group.Owns(ring.HashChunk(k)) {
		return nil, objcache.Errorf(objcache.NotOwner, "chunk %v", k)
	}
	end := min(r.GetOff()+r.GetLen(), objcache.ChunkSize, r.GetSize()-k.Offset())
	if r.GetOff() < 0 || r.GetLen() > objcache.ChunkSize {
		return nil, objcache.Errorf(objcache.Invalid, "read of %d bytes at %d", r.GetLen(), r.GetOff())
	}
	if end <= r.GetOff() {
		return nil, nil
	}
	p := make([]byte, end-r.GetOff())
	gaps, clean, err := t.cfg.Group.ReadExtents(ctx, k, r.GetVersion(), r.GetOff(), p)
	if err != nil {
		return nil, err
	}
	if len(gaps) == 0 {
		return p, nil
	}
	return p, t.fillGaps(ctx, baseKey{k, r.GetVersion(), clean}, r.GetOff(), p, gaps)
}

// fillGaps reads what the group has no extents for from the file's base, which may change under a version (a rename in external storage, an
// upload of the same bytes): then the base is asked for again.
func (t *Transfer) fillGaps(ctx context.Context, bk baseKey, off int64, p []byte, gaps []objcache.Range) error {
	k := bk.chunk
	var last [2]string
	for {
		bucket, base, err := t.base(ctx, bk)
		if err != nil {
			return err
		}
		if err = t.readBase(ctx, k, bucket, base, off, p, gaps); err == nil {
			return nil
		}
		if !errors.Is(err, objcache.Precondition) && !errors.Is(err, objcache.NotExist) {
			return err
		}
		t.forgetBase(bk)
		// The same bytes under another key are another base: of a file on its way, which may go on to a third.
		now := [2]string{base.GetKey(), base.GetEtag()}
		if now == last {
			if err := t.changedOutside(ctx, bk, base, err); err != nil {
				return err
			}
		}
		last = now
	}
}

// changedOutside is called when the object of a file's base is another now, and stays: nil when it is ours all the same, and the base has followed it. Else
// look at the directory again and let the reader start over with the version that is there now; Stale if there is none.
func (t *Transfer) changedOutside(ctx context.Context, bk baseKey, base *record.Base, cause error) error {
	ino := bk.chunk.Ino
	if err := t.awaitUpload(ctx, bk, base); err != nil {
		return err
	}
	t.forgetBase(bk)
	switch _, now, err := t.base(ctx, bk); {
	case err != nil:
		return err // Superseded
	case now.GetKey() != base.GetKey() || now.GetEtag() != base.GetEtag():
		return nil
	}
	_, err := t.cfg.Peers.Call(ctx, ring.HashInode(ino), &rpc.Request{Op: &rpc.Request_Refresh{Refresh: &rpc.RefreshRequest{Ino: uint64(ino)}}})
	if err != nil {
		return err
	}
	t.forgetBase(bk)
	if _, _, err := t.base(ctx, bk); err != nil {
		return err // Superseded
	}
	t.forgetBase(bk)
	return objcache.Errorf(objcache.Stale, "bytes of inode %d: %w", ino, cause)
}

// Waiting for an upload to the key that a reader has found changed.
const (
	uploadPause    = 100 * time.Millisecond
	uploadPatience = time.Minute // as long as a read waits for external storage
)

// awaitUpload waits while an upload of the file to its base's key is under way: the object may be its own, of which nobody has heard yet. IO when it
// does not end in time.
func (t *Transfer) awaitUpload(ctx context.Context, bk baseKey, base *record.Base) error {
	ctx, cancel := context.WithTimeout(ctx, uploadPatience)
	defer cancel()
	for {
		in, err := t.inspect(ctx, uint64(bk.chunk.Ino))
		if err != nil || in.GetIntent().GetKey() != base.GetKey() {
			return err
		}
		pause := time.NewTimer(uploadPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			kind := objcache.KindOf(ctx.Err())
			if kind == objcache.Unavailable {
				kind = objcache.IO
			}
			return objcache.Errorf(kind, "bytes of inode %d: waiting for the end of its upload: %w", bk.chunk.Ino, ctx.Err())
		}
	}
}

func (t *Transfer) base(ctx context.Context, bk baseKey) (string, *record.Base, error) {
	ino, version := bk.chunk.Ino, bk.version
	t.bases.mu.Lock()
	b, ok := t.bases.mu.known[bk]
	t.bases.mu.Unlock()
	if ok {
		return b.bucket, b.base, nil
	}
	in, err := t.inspect(ctx, uint64(ino))
	if err != nil {
		return "", nil, err
	}
	if in.GetVersion() != version {
		return "", nil, objcache.Errorf(objcache.Superseded, "inode %d is at version %d, not %d", ino, in.GetVersion(), version)
	}
	t.bases.mu.Lock()
	defer t.bases.mu.Unlock()
	if len(t.bases.mu.known) >= maxBases {
		clear(t.bases.mu.known)
	}
	t.bases.mu.known[bk] = known{in.GetBucket(), in.GetBase()}
	return in.GetBucket(), in.GetBase(), nil
}

func (t *Transfer) forgetBase(bk baseKey) {
	t.bases.mu.Lock()
	delete(t.bases.mu.known, bk)
	t.bases.mu.Unlock()
}

// readBase reads gaps of a chunk from an object; what lies behind the base's length is zeros.
func (t *Transfer) readBase(ctx context.Context, k objcache.ChunkKey, bucket string, base *record.Base, off int64, p []byte, gaps []objcache.Range) error {
	for _, g := range gaps {
		dst := p[g.Off-off : g.End()-off]
		have := g.Intersect(objcache.Range{Off: 0, Len: max(0, base.GetLength()-k.Offset())})
		clear(dst[have.Len:])
		if have.Len == 0 {
			continue
		}
		if err := t.readClean(ctx, k, bucket, base, have.Off, dst[:have.Len]); err != nil {
			return err
		}
	}
	return nil
}

func (t *Transfer) readClean(ctx context.Context, k objcache.ChunkKey, bucket string, base *record.Base, off int64, dst []byte) error {
	ok, err := t.cfg.Clean.ReadClean(k, base.GetEtag(), off, dst)
	if err != nil || ok {
		return err
	}
	unit := int64(smallSegment)
	if len(dst) >= smallSegment {
		unit = largeSegment
	}
	limit := min(objcache.ChunkSize, base.GetSize()-k.Offset())
	var fs []*flight
	for at := off / unit * unit; at < off+int64(len(dst)); at += unit {
		f, err := t.flights.join(ctx, t, flightKey{k, base.GetEtag(), at, min(unit, limit-at)}, bucket, base.GetKey())
		if err != nil {
			return err
		}
		fs = append(fs, f)
	}
	for _, f := range fs {
		if err := f.copy(ctx, off, dst); err != nil {
			return err
		}
	}
	return nil
}

// flights are the GETs under way: a miss that many ask for at once is one request.
type flights struct {
	room chan struct{}
	mu   struct {
		sync.Mutex
		under map[flightKey]*flight
	}
}

type flightKey struct {
	chunk    objcache.ChunkKey
	tag      string
	off, len int64 // in the chunk
}

type flight struct {
	key flightKey
	buf []byte
	mu  struct {
		sync.Mutex
		filled int64
		err    error
		more   chan struct{} // closed when filled or err changes
	}
}

func (fs *flights) init() {
	fs.room = make(chan struct{}, maxFlights)
	fs.mu.under = map[flightKey]*flight{}
}

func (fs *flights) join(ctx context.Context, t *Transfer, key flightKey, bucket, object string) (*flight, error) {
	fs.mu.Lock()
	f := fs.mu.under[key]
	fs.mu.Unlock()
	if f != nil {
		return f, nil
	}
	store, err := t.store(bucket)
	if err != nil {
		return nil, err
	}
	select {
	case fs.room <- struct{}{}:
	case <-ctx.Done():
		return nil, objcache.Errorf(objcache.KindOf(ctx.Err()), "wait to fetch: %w", ctx.Err())
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if f := fs.mu.under[key]; f != nil {
		<-fs.room
		return f, nil
	}
	f = &flight{key: key, buf: make([]byte, key.len)}
	f.mu.more = make(chan struct{})
	fs.mu.under[key] = f
	// The fetch outlives a reader that gives up: others may wait for it, and the bytes are worth keeping.
	t.background(func(ctx context.Context) {
		err := f.fetch(ctx, store, object, t.cfg.Clean)
		if k := objcache.KindOf(err); err != nil && k != objcache.Precondition && k != objcache.NotExist {
			t.cfg.Logger.Warn("a fetch failed, or could not be cached", "key", object, "offset", key.chunk.Offset()+key.off, "error", err)
		}
		fs.mu.Lock()
		delete(fs.mu.under, key)
		fs.mu.Unlock()
		<-fs.room
		f.publish(0, err)
	})
	return f, nil
}

func (f *flight) publish(filled int64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.filled = max(f.mu.filled, filled)
	if err != nil {
		f.mu.err = err
	}
	close(f.mu.more)
	f.mu.more = make(chan struct{})
}

// fetch reads the segment, for those who wait for it and then for the cache; a body that breaks off is asked for again from where it stopped, as often as
// it makes progress. Until the cache has the bytes, whoever asks for them joins this flight.
func (f *flight) fetch(ctx context.Context, store external.Store, object string, clean Clean) error {
	base := f.key.chunk.Offset() + f.key.off
	var at int64
	var err error
	for at < f.key.len && err == nil {
		var n int64
		if n, err = f.get(ctx, store, object, base, at); n > 0 {
			at, err = at+n, nil
		}
	}
	// Whole blocks only go to disk.
	whole := at
	if whole < f.key.len {
		whole -= whole % block
	}
	if whole == 0 {
		return err
	}
	if ferr := clean.Fill(f.key.chunk, f.key.tag, f.key.off, f.buf[:whole]); ferr != nil && !errors.Is(ferr, objcache.NoSpace) {
		return errors.Join(err, ferr)
	}
	return err
}

// get asks for the segment from at on and returns how many bytes came.
func (f *flight) get(ctx context.Context, store external.Store, object string, base, at int64) (int64, error) {
	body, _, err := store.Get(ctx, object, base+at, f.key.len-at, f.key.tag)
	if err != nil {
		return 0, err
	}
	n, err := f.drain(body, at)
	if cerr := body.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		err = objcache.Errorf(objcache.IO, "body of %q: %w", object, err)
	}
	return n, err
}

const drainStep = 512 << 10

// drain reads a body that begins at at and publishes it step by step.
func (f *flight) drain(body io.Reader, at int64) (int64, error) {
	start := at
	for at < f.key.len {
		end := min(at+drainStep-at%drainStep, f.key.len)
		n, err := io.ReadFull(body, f.buf[at:end])
		if n > 0 {
			at += int64(n)
			f.publish(at, nil)
		}
		if err != nil {
			return at - start, err
		}
	}
	return at - start, nil
}

// copy waits for the part of dst (which begins at off in the chunk) that this segment brings.
func (f *flight) copy(ctx context.Context, off int64, dst []byte) error {
	r := objcache.Range{Off: f.key.off, Len: f.key.len}.Intersect(objcache.Range{Off: off, Len: int64(len(dst))})
	for {
		f.mu.Lock()
		filled, err, more := f.mu.filled, f.mu.err, f.mu.more
		f.mu.Unlock()
		switch {
		case filled >= r.End()-f.key.off:
			copy(dst[r.Off-off:r.End()-off], f.buf[r.Off-f.key.off:r.End()-f.key.off])
			return nil
		case err != nil:
			return err
		}
		select {
		case <-more:
		case <-ctx.Done():
			return objcache.Errorf(objcache.KindOf(ctx.Err()), "wait for bytes: %w", ctx.Err())
		}
	}
}

// Warm brings a chunk of a file into the cache.
func (t *Transfer) Warm(ctx context.Context, r *rpc.WarmRequest) error {
	k := objcache.ChunkKey{Ino: objcache.Ino(r.GetIno()), Index: r.GetChunk()}
	for off := int64(0); off < objcache.ChunkSize && k.Offset()+off < r.GetLen(); off += largeSegment {
		_, err := t.Read(ctx, &rpc.ReadRequest{Ino: r.GetIno(), Chunk: r.GetChunk(), Version: r.GetVersion(), Off: off, Len: largeSegment, Size: r.GetLen()})
		if err != nil {
			return err
		}
	}
	return nil
}
