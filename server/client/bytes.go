package client

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/ring"
)

// Sizes of what one call carries, bytes.
const (
	stagePiece   = 4 << 20
	inlineLimit  = 256 << 10 // a flush of no more than this to the first chunk carries the bytes itself
	piecesAtOnce = 4
)

// files is what the session knows of files: sizes by version, staged bytes.
type files struct {
	mu struct {
		sync.Mutex
		known map[objcache.Ino]sized
		byIno map[objcache.Ino]*file
	}
	rounds atomic.Uint64
}

type sized struct {
	version, generation uint64
	size                int64
}

// file is the staged state of one file. Stage holds the lock shared, Flush alone.
type file struct {
	sync.RWMutex
	users int // under files.mu
	mu    struct {
		sync.Mutex
		generation uint64
		chunks     map[uint32]*staged
	}
}

// staged counts the stageSeqs of one chunk: first..last are not flushed yet. A number is never used for two writes.
type staged struct{ first, last uint64 }

const maxKnown = 1 << 17

func (f *files) init() {
	f.mu.known = map[objcache.Ino]sized{}
	f.mu.byIno = map[objcache.Ino]*file{}
}

func (f *files) seen(a *rpc.Attr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.mu.known) >= maxKnown {
		clear(f.mu.known)
	}
	ino := objcache.Ino(a.GetIno())
	if old, ok := f.mu.known[ino]; !ok || old.version <= a.GetVersion() {
		f.mu.known[ino] = sized{a.GetVersion(), a.GetGeneration(), a.GetSize()}
	}
}

func (f *files) get(ino objcache.Ino) *file {
	f.mu.Lock()
	defer f.mu.Unlock()
	x := f.mu.byIno[ino]
	if x == nil {
		x = &file{}
		x.mu.chunks = map[uint32]*staged{}
		f.mu.byIno[ino] = x
	}
	x.users++
	return x
}

func (f *files) put(ino objcache.Ino, x *file) {
	f.mu.Lock()
	defer f.mu.Unlock()
	x.users--
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.users == 0 && len(x.mu.chunks) == 0 {
		delete(f.mu.byIno, ino)
	}
}

// known returns what the session knows of a file, asking if it knows nothing.
func (c *Client) known(ctx context.Context, ino objcache.Ino) (sized, error) {
	c.files.mu.Lock()
	s, ok := c.files.mu.known[ino]
	c.files.mu.Unlock()
	if ok {
		return s, nil
	}
	if _, err := c.Getattr(ctx, ino); err != nil {
		return sized{}, err
	}
	c.files.mu.Lock()
	defer c.files.mu.Unlock()
	return c.files.mu.known[ino], nil
}

// ReadAt reads committed bytes of a version.
func (c *Client) ReadAt(ctx context.Context, ino objcache.Ino, version uint64, p []byte, off int64) (int, error) {
	s, err := c.known(ctx, ino)
	if err != nil {
		return 0, err
	}
	if s.version != version {
		if _, err := c.Getattr(ctx, ino); err != nil {
			return 0, err
		}
		if s, err = c.known(ctx, ino); err != nil {
			return 0, err
		}
		if s.version != version {
			return 0, objcache.Errorf(objcache.Superseded, "inode %d is at version %d, not %d", ino, s.version, version)
		}
	}
	n := min(int64(len(p)), s.size-off)
	if n <= 0 {
		return 0, nil
	}
	g, ctx := errgroup.WithContext(ctx)
	for at := off; at < off+n; {
		k := objcache.ChunkKey{Ino: ino, Index: objcache.ChunkOf(at)}
		end := min(off+n, k.Offset()+objcache.ChunkSize)
		dst, in := p[at-off:end-off], at-k.Offset()
		g.Go(func() error { return c.readChunk(ctx, k, version, s.size, in, dst) })
		at = end
	}
	if err := g.Wait(); err != nil {
		return 0, err
	}
	return int(n), nil
}

func (c *Client) readChunk(ctx context.Context, k objcache.ChunkKey, version uint64, size, off int64, dst []byte) error {
	r, err := c.readInto(ctx, ring.HashChunk(k), &rpc.Request{Op: &rpc.Request_Read{Read: &rpc.ReadRequest{
		Ino: uint64(k.Ino), Chunk: k.Index, Version: version, Off: off, Len: int64(len(dst)), Size: size,
	}}}, dst)
	if err != nil {
		return err
	}
	got := r.GetRead().GetData()
	if len(got) != len(dst) {
		return objcache.Errorf(objcache.IO, "chunk %v: %d bytes instead of %d", k, len(got), len(dst))
	}
	if len(got) > 0 && &got[0] != &dst[0] {
		copy(dst, got)
	}
	return nil
}

// Stage sends bytes to the owners of their chunks ahead of a flush.
func (c *Client) Stage(ctx context.Context, ino objcache.Ino, r objcache.Range, src io.ReaderAt) error {
	s, err := c.life.current(ctx)
	if err != nil {
		return err
	}
	f := c.files.get(ino)
	defer c.files.put(ino, f)
	f.RLock()
	defer f.RUnlock()
	return c.stage(ctx, s, ino, f, []objcache.Range{r}, src)
}

func (c *Client) stage(ctx context.Context, as *session, ino objcache.Ino, f *file, ranges []objcache.Range, src io.ReaderAt) error {
	s, err := c.known(ctx, ino)
	if err != nil {
		return err
	}
	f.mu.Lock()
	if len(f.mu.chunks) == 0 {
		f.mu.generation = s.generation
	}
	gen := f.mu.generation
	f.mu.Unlock()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(piecesAtOnce)
	for _, r := range ranges {
		for at := r.Off; at < r.End(); {
			k := objcache.ChunkKey{Ino: ino, Index: objcache.ChunkOf(at)}
			// Pieces end on the grid of pieces, so that large writes are aligned.
			end := min(r.End(), at-at%stagePiece+stagePiece)
			piece := objcache.Range{Off: at, Len: end - at}
			seq := f.next(c.round, k.Index)
			g.Go(func() error { return c.stagePiece(ctx, as, k, gen, seq, piece, src) })
			at = end
		}
	}
	return g.Wait()
}

// round numbers the first of the next staged writes of a chunk.
func (c *Client) round() uint64 { return c.files.rounds.Add(1)<<32 + 1 }

func (f *file) next(round func() uint64, chunk uint32) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.mu.chunks[chunk]
	if s == nil {
		first := round()
		s = &staged{first: first, last: first - 1}
		f.mu.chunks[chunk] = s
	}
	s.last++
	return s.last
}

var pieces = sync.Pool{New: func() any { b := make([]byte, stagePiece); return &b }}

func (c *Client) stagePiece(ctx context.Context, as *session, k objcache.ChunkKey, gen, seq uint64, r objcache.Range, src io.ReaderAt) error {
	buf := pieces.Get().(*[]byte)
	p := (*buf)[:r.Len]
	if _, err := src.ReadAt(p, r.Off); err != nil && !errors.Is(err, io.EOF) {
		return objcache.Errorf(objcache.IO, "read bytes to stage: %w", err)
	}
	bounded, cancel := c.bound(ctx)
	defer cancel()
	_, err := c.readAs(bounded, as, ring.HashChunk(k), &rpc.Request{Op: &rpc.Request_Stage{Stage: &rpc.StageRequest{
		Ino: uint64(k.Ino), Chunk: k.Index, Generation: gen, Seq: seq, Off: r.Off - k.Offset(), Data: p,
	}}}, nil)
	if err == nil { // after an error the transport may still be sending the bytes (rpc.Codec)
		pieces.Put(buf)
	}
	return err
}

// Flush commits bytes, size and time in one transaction, all of it under one session.
func (c *Client) Flush(ctx context.Context, fl objcache.Flush) (objcache.Attr, error) {
	s, err := c.flushSession(ctx, fl)
	if err != nil {
		return objcache.Attr{}, err
	}
	f := c.files.get(fl.Ino)
	defer c.files.put(fl.Ino, f)
	f.Lock()
	defer f.Unlock()
	dirty, again := fl.Dirty, false
	for {
		var a objcache.Attr
		r, err := c.prepareFlush(ctx, s, f, fl, dirty, again)
		if err == nil {
			a, err = c.flushParts(ctx, s, r)
		}
		if errors.Is(err, objcache.Fenced) {
			return a, errors.Join(err, c.next(ctx, s))
		}
		if !errors.Is(err, objcache.StageLost) {
			if err == nil {
				f.flushed()
			}
			return a, err
		}
		// An owner restarted, or another mount truncated: everything is sent again, under the present generation.
		f.flushed()
		if _, err := c.Getattr(ctx, fl.Ino); err != nil {
			return objcache.Attr{}, err
		}
		dirty, again = append(append([]objcache.Range{}, fl.Staged...), fl.Dirty...), true
	}
}

// flushSession is the session under which the bytes were written, if it still lives.
func (c *Client) flushSession(ctx context.Context, fl objcache.Flush) (*session, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	s, err := c.life.current(ctx)
	if err == nil && fl.Session != 0 && fl.Session != s.number {
		err = objcache.Errorf(objcache.Fenced, "bytes of session %d of inode %d", fl.Session, fl.Ino)
	}
	return s, err
}

// flushParts sends a flush, in several transactions if it is too large for one.
func (c *Client) flushParts(ctx context.Context, s *session, r *rpc.FlushRequest) (a objcache.Attr, err error) {
	for i, part := range split(r) {
		if i > 0 && part.GetIfVersion() != 0 {
			part.IfVersion = a.Version
		}
		if a, err = c.flushPart(ctx, s, part); err != nil {
			return a, err
		}
	}
	return a, nil
}

// next waits for the session behind one that has ended.
func (c *Client) next(ctx context.Context, s *session) error {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	return c.life.after(ctx, s)
}

func (c *Client) flushPart(ctx context.Context, s *session, part *rpc.FlushRequest) (objcache.Attr, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	return c.attrReply(c.mutateAs(ctx, s, hashOf(objcache.Ino(part.GetIno())), &rpc.Request{Op: &rpc.Request_Flush{Flush: part}}))
}

// maxPieces is how many staged writes one transaction commits: their extents must fit one log entry (4 MiB), at up to 1 KiB each.
const maxPieces = 2048

// split makes transactions of a size that every log takes; nearly always one. Of several each leaves a longer prefix of the flush behind.
func split(r *rpc.FlushRequest) []*rpc.FlushRequest {
	slices.SortFunc(r.Chunks, func(a, b *rpc.StagedChunk) int { return cmp.Compare(a.GetChunk(), b.GetChunk()) })
	var parts []*rpc.FlushRequest
	part, room := proto.CloneOf(r), uint64(maxPieces)
	part.Chunks = nil
	for _, c := range r.GetChunks() {
		for first := c.GetFirst(); first <= c.GetSeq(); {
			if room == 0 {
				parts = append(parts, part)
				part, room = proto.CloneOf(part), maxPieces
				part.Chunks, part.Inline = nil, nil
			}
			last := min(c.GetSeq(), first+room-1)
			part.Chunks = append(part.Chunks, &rpc.StagedChunk{Chunk: c.GetChunk(), First: first, Seq: last})
			part.Size = min(r.GetSize(), (int64(c.GetChunk())+1)*objcache.ChunkSize)
			room -= last - first + 1
			first = last + 1
		}
	}
	part.Size = r.GetSize()
	return append(parts, part)
}

func (f *file) flushed() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.mu.chunks)
}

// prepareFlush stages what is not staged yet, unless it is little and nothing was ever staged: what owners still hold of an earlier attempt they free
// when they hear of a later one for the same chunk.
func (c *Client) prepareFlush(ctx context.Context, as *session, f *file, fl objcache.Flush, dirty []objcache.Range, again bool) (*rpc.FlushRequest, error) {
	s, err := c.known(ctx, fl.Ino)
	if err != nil {
		return nil, err
	}
	r := &rpc.FlushRequest{Ino: uint64(fl.Ino), Generation: s.generation, Size: fl.Size, Mtime: fl.Mtime.UnixNano(), Now: now(), IfVersion: fl.IfVersion}
	if !fl.Ctime.IsZero() {
		r.Now = fl.Ctime.UnixNano()
	}
	f.mu.Lock()
	before := len(f.mu.chunks)
	f.mu.Unlock()
	if before == 0 && !again && fits(dirty) {
		for _, d := range dirty {
			p := make([]byte, d.Len)
			if _, err := fl.Src.ReadAt(p, d.Off); err != nil && !errors.Is(err, io.EOF) {
				return nil, objcache.Errorf(objcache.IO, "read bytes to flush: %w", err)
			}
			r.Inline = append(r.Inline, &rpc.Inline{Off: d.Off, Data: p})
		}
		return r, nil
	}
	if err := c.stage(ctx, as, fl.Ino, f, dirty, fl.Src); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	r.Generation = f.mu.generation
	for i, st := range f.mu.chunks {
		r.Chunks = append(r.Chunks, &rpc.StagedChunk{Chunk: i, First: st.first, Seq: st.last})
	}
	return r, nil
}

// fits reports whether ranges are few bytes of the first chunk.
func fits(rs []objcache.Range) bool {
	var n int64
	for _, r := range rs {
		n += r.Len
		if r.End() > objcache.ChunkSize {
			return false
		}
	}
	return n <= inlineLimit
}

// Append adds bytes at the end of a file.
func (c *Client) Append(ctx context.Context, ino objcache.Ino, p []byte, mtime time.Time) (int64, objcache.Attr, error) {
	r, err := c.mutate(ctx, hashOf(ino), &rpc.Request{Op: &rpc.Request_Append{Append: &rpc.AppendRequest{Ino: uint64(ino), Data: p, Mtime: mtime.UnixNano()}}})
	if err != nil {
		return 0, objcache.Attr{}, err
	}
	return r.GetAppend().GetOff(), c.attr(r.GetAppend().GetAttr()), nil
}

// Sync waits for external storage when the cluster's upload mode says so.
func (c *Client) Sync(ctx context.Context, ino objcache.Ino, closing bool) error {
	c.mu.Lock()
	mode := c.mu.upload
	c.mu.Unlock()
	if mode != "onClose" && (mode != "onFsync" || closing) {
		return nil
	}
	return c.Persist(ctx, ino)
}

// Persist brings one inode to external storage and waits; what must come first is waited for too.
func (c *Client) Persist(ctx context.Context, ino objcache.Ino) error {
	pause := firstPause
	for {
		_, err := c.read(ctx, hashOf(ino), &rpc.Request{Op: &rpc.Request_Persist{Persist: &rpc.PersistRequest{Ino: uint64(ino)}}})
		if !errors.Is(err, objcache.Conflict) {
			return err
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return objcache.Errorf(ended(ctx), "persist of inode %d: %w", ino, err)
		}
		pause = min(2*pause, maxPause)
	}
}
