package transfer

import (
	"bytes"
	"context"
	"errors"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/external"
	"github.com/objcache/objcache/server/record"
	"github.com/objcache/objcache/server/ring"
)

// sendParts uploads a large file: each chunk's owner sends its own part, all at the same time.
func (t *Transfer) sendParts(ctx context.Context, in *record.Inode) ([]external.Part, error) {
	it := in.GetIntent()
	base, err := encode(in.GetBase())
	if err != nil {
		return nil, err
	}
	n := objcache.ChunkOf(it.GetSize()-1) + 1
	if n > maxParts {
		return nil, objcache.Errorf(objcache.TooLarge, "file of %d chunks: more than %d parts", n, maxParts)
	}
	parts := make([]external.Part, n)
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(partsAtOnce)
	for c := range n {
		g.Go(func() error {
			k := objcache.ChunkKey{Ino: objcache.Ino(in.GetIno()), Index: c}
			r, err := t.cfg.Peers.Call(ctx, ring.HashChunk(k), &rpc.Request{Op: &rpc.Request_UploadPart{UploadPart: &rpc.UploadPartRequest{
				Ino: in.GetIno(), Chunk: c, Bucket: in.GetBucket(), Key: it.GetKey(), UploadId: it.GetUploadId(), Number: int32(c) + 1,
				Len: min(objcache.ChunkSize, it.GetSize()-k.Offset()), Version: it.GetVersion(), Base: base,
			}}})
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			parts[c] = external.Part{Number: int32(c) + 1, ETag: r.GetUploadPart().GetEtag()}
			return nil
		})
	}
	return parts, g.Wait()
}

// UploadPart sends a pinned version of one chunk of this group as one part: a copy of the old object's range when nothing in it has changed.
func (t *Transfer) UploadPart(ctx context.Context, r *rpc.UploadPartRequest) (string, error) {
	k := objcache.ChunkKey{Ino: objcache.Ino(r.GetIno()), Index: r.GetChunk()}
	store, err := t.store(r.GetBucket())
	if err != nil {
		return "", err
	}
	base := &record.Base{}
	if err := decodeBase(r.GetBase(), base); err != nil {
		return "", err
	}
	dirty, err := t.cfg.Group.HasBytes(ctx, k, r.GetVersion())
	if err != nil {
		return "", err
	}
	if !dirty && base.GetLength() >= k.Offset()+r.GetLen() && store.Capabilities().CopyPart {
		match := base.GetEtag()
		if !store.Capabilities().CopyIfMatch {
			match = ""
		}
		etag, err := store.CopyPart(ctx, r.GetKey(), r.GetUploadId(), r.GetNumber(), base.GetKey(), k.Offset(), r.GetLen(), match)
		if !baseGone(err) {
			return etag, err
		}
	}
	p := make([]byte, r.GetLen())
	if err := t.readPinned(ctx, k, r.GetBucket(), base, r.GetVersion(), 0, p); err != nil {
		return "", err
	}
	return store.UploadPart(ctx, r.GetKey(), r.GetUploadId(), r.GetNumber(), bytes.NewReader(p))
}

// baseGone reports whether a copy failed because its source is not there any more, or another: what is cached of it may still do.
func baseGone(err error) bool {
	return errors.Is(err, objcache.NotExist) || errors.Is(err, objcache.Precondition)
}
