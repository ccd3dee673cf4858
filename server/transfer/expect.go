package transfer

import (
	"context"
	"errors"
	"slices"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/record"
)

// expected is the ETag of the object of ours that stands under a name's key, "" when there is none: what a put may overwrite.
func (t *Transfer) expected(ctx context.Context, in *record.Inode, link *record.Link, p *rpc.PathReply) (string, error) {
	etags, err := t.settleDebtors(ctx, objcache.Ino(in.GetIno()), p)
	if err != nil {
		return "", err
	}
	if link.GetKey() == p.GetPath() {
		return link.GetEtag(), nil
	}
	for _, b := range in.GetTrash() {
		if b.GetKey() == p.GetPath() {
			etags = append(etags, b.GetEtag()) // its own: it was renamed away and back, or another of its names stood there
		}
	}
	return t.standingOf(ctx, in, p.GetPath(), slices.Compact(etags))
}

// standingOf is which of the objects that were written under a key stands there. Files that had the name in turns have written in another order than they
// lost it, so only the bucket can tell.
func (t *Transfer) standingOf(ctx context.Context, in *record.Inode, key string, etags []string) (string, error) {
	if len(etags) == 0 {
		return "", nil
	}
	last := etags[len(etags)-1]
	if len(etags) == 1 {
		return last, nil
	}
	store, err := t.store(in.GetBucket())
	if err != nil {
		return "", err
	}
	o, err := store.Head(ctx, key)
	switch {
	case err == nil && slices.Contains(etags, o.ETag):
		return o.ETag, nil
	case err == nil:
		return last, nil // another client's; the put will say so
	case objcache.KindOf(err) == objcache.NotExist:
		return "", nil
	}
	return "", err
}

// settleDebtors makes sure that the object which stands under a name is nobody's only copy, and returns the ETags of those that others wrote there.
func (t *Transfer) settleDebtors(ctx context.Context, me objcache.Ino, p *rpc.PathReply) (etags []string, err error) {
	for i, d := range p.GetDebtors() {
		if key := p.GetDebtKeys()[i]; key != "" && key != p.GetPath() {
			continue // left behind where the directory was before
		}
		in, err := t.inspect(ctx, d)
		if err != nil {
			return nil, err
		}
		if in == nil {
			continue
		}
		if in.GetIntent() == nil && !onlyCopy(in, p.GetPath()) {
			if etag := p.GetDebtEtags()[i]; etag != "" {
				etags = append(etags, etag)
			}
			continue
		}
		if circle, err := t.waitsFor(ctx, in, me); err != nil {
			return nil, err
		} else if circle {
			return nil, errors.Join(errWait, t.localize(ctx, me))
		}
		if err := t.persistElsewhere(ctx, d); err != nil && !errors.Is(err, objcache.Conflict) {
			return nil, err
		}
		return nil, waitFor(d)
	}
	return etags, nil
}
