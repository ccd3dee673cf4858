package external

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"time"

	"github.com/objcache/objcache"
)

// probeSourceSize is the size of the object that parts are copied from: AWS copies ranges only out of objects above 5 MiB.
const probeSourceSize = 5<<20 + 1

// Probe finds what a store honours by trying it on keys that begin with prefix and a random name; it removes them again.
// A store that refuses the first write has no capabilities, and that is no error. Errors: Unavailable, Interrupted: nothing
// is known then.
func Probe(ctx context.Context, s Store, prefix string) (Capabilities, error) {
	p := &probe{ctx: ctx, s: s, key: prefix + "probe-" + rand.Text()}
	defer p.cleanUp()
	etag := p.try(s.Put(ctx, p.key, zeros(probeSourceSize), nil, Condition{}))
	if p.err != nil || etag == "" {
		return Capabilities{}, p.err
	}
	caps := Capabilities{
		ConditionalPut:      p.conditionalPut(),
		ConditionalComplete: p.conditionalComplete(),
	}
	caps.CopyPart, caps.CopyIfMatch = p.copies(etag)
	if p.err != nil {
		return Capabilities{}, p.err
	}
	return caps, nil
}

const noETag = "00000000000000000000000000000000"

type probe struct {
	ctx context.Context
	s   Store
	key string // the copy source; others append to it
	ids []string
	err error // the first error after which nothing is known
}

// try returns the ETag of a request that went through, "" for one that the store refused.
func (p *probe) try(etag string, err error) string {
	p.note(err)
	if err != nil {
		return ""
	}
	return etag
}

// refused reports whether the store saw that the condition does not hold.
func (p *probe) refused(_ string, err error) bool {
	p.note(err)
	return objcache.KindOf(err) == objcache.Precondition
}

func (p *probe) note(err error) {
	k := objcache.KindOf(err)
	if p.err == nil && err != nil && (k == objcache.Unavailable || k == objcache.Interrupted) {
		p.err = err
	}
}

func (p *probe) object() string { return p.key + ".object" }

func (p *probe) put(c Condition) (string, error) {
	return p.s.Put(p.ctx, p.object(), bytes.NewReader([]byte("probe")), nil, c)
}

func (p *probe) conditionalPut() bool {
	etag := p.try(p.put(Condition{IfNone: true}))
	return etag != "" && p.refused(p.put(Condition{IfNone: true})) && p.refused(p.put(Condition{IfMatch: noETag})) &&
		p.try(p.put(Condition{IfMatch: etag})) != ""
}

// complete runs one small upload to its end under a condition.
func (p *probe) complete(c Condition) (string, error) {
	id, err := p.upload()
	if err != nil {
		return "", err
	}
	etag, err := p.s.UploadPart(p.ctx, p.object(), id, 1, bytes.NewReader([]byte("probe")))
	if err != nil {
		return "", err
	}
	return p.s.CompleteUpload(p.ctx, p.object(), id, []Part{{Number: 1, ETag: etag}}, c)
}

func (p *probe) upload() (string, error) {
	id, err := p.s.CreateUpload(p.ctx, p.object(), nil)
	if err == nil {
		p.ids = append(p.ids, id)
	}
	return id, err
}

func (p *probe) conditionalComplete() bool {
	etag := p.try(p.complete(Condition{}))
	return etag != "" && p.refused(p.complete(Condition{IfNone: true})) && p.refused(p.complete(Condition{IfMatch: noETag})) &&
		p.try(p.complete(Condition{IfMatch: etag})) != ""
}

func (p *probe) copies(etag string) (part, ifMatch bool) {
	id := p.try(p.upload())
	if id == "" {
		return false, false
	}
	copyPart := func(off, length int64, srcETag string) (string, error) {
		return p.s.CopyPart(p.ctx, p.object(), id, 1, p.key, off, length, srcETag)
	}
	part = p.try(copyPart(1, probeSourceSize-1, etag)) != ""
	ifMatch = part && p.refused(copyPart(1, probeSourceSize-1, noETag)) &&
		p.refused(p.s.Copy(p.ctx, p.object(), p.key, noETag, nil, Condition{}))
	return part, ifMatch
}

// cleanUp also runs after ctx is done. What it cannot remove lies under the reserved prefix, which nobody reads.
func (p *probe) cleanUp() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), 10*time.Second)
	defer cancel()
	for _, id := range p.ids {
		_ = p.s.AbortUpload(ctx, p.object(), id)
	}
	_ = p.s.Delete(ctx, p.object())
	_ = p.s.Delete(ctx, p.key)
}

// zeros is a body of n zero bytes that takes no memory.
func zeros(n int64) Body { return io.NewSectionReader(zeroReader{}, 0, n) }

type zeroReader struct{}

func (zeroReader) ReadAt(p []byte, _ int64) (int, error) {
	clear(p)
	return len(p), nil
}
