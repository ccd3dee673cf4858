package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/external"
)

// Head asks for one object's size, ETag, time and metadata.
func (s *Store) Head(ctx context.Context, key string) (external.Object, error) {
	if err := s.checkKey("head", key); err != nil {
		return external.Object{}, err
	}
	out, err := s.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &s.bucket, Key: &key})
	if err != nil {
		return external.Object{}, s.fail(ctx, "head", key, err)
	}
	if out.ContentLength == nil {
		return external.Object{}, objcache.Errorf(objcache.IO, "s3: head %s: the answer has no length", name(s.bucket, key))
	}
	return external.Object{
		Key: key, Size: *out.ContentLength, ETag: unquote(out.ETag), Modified: aws.ToTime(out.LastModified), Meta: lower(out.Metadata),
	}, nil
}

// Get opens a range of an object. The body belongs to the caller, who closes it.
func (s *Store) Get(ctx context.Context, key string, off, length int64, ifMatch string) (io.ReadCloser, external.Object, error) {
	if err := s.checkKey("get", key); err != nil {
		return nil, external.Object{}, err
	}
	if off < 0 || length == 0 {
		return nil, external.Object{}, objcache.Errorf(objcache.Invalid, "s3: get %s: range %d+%d", name(s.bucket, key), off, length)
	}
	ctx, cancel := context.WithCancel(ctx)
	out, err := s.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &s.bucket, Key: &key, IfMatch: quoted(ifMatch), Range: rangeHeader(off, length)})
	if err != nil {
		err = s.fail(ctx, "get", key, err)
		cancel()
		return nil, external.Object{}, err
	}
	span, err := spanOf(out, off, length)
	if err == nil && ifMatch != "" && unquote(out.ETag) != ifMatch {
		err = fmt.Errorf("asked for ETag %s, got %s", ifMatch, unquote(out.ETag))
	}
	if err != nil {
		cancel()
		_ = out.Body.Close() // the connection is of no use, whatever Close says
		return nil, external.Object{}, objcache.Errorf(objcache.IO, "s3: get %s: %w", name(s.bucket, key), err)
	}
	obj := external.Object{Key: key, Size: span.total, ETag: unquote(out.ETag), Modified: aws.ToTime(out.LastModified), Meta: lower(out.Metadata)}
	return newBody(out.Body, span.length, s.idle, cancel, "s3: get "+name(s.bucket, key)), obj, nil
}

func rangeHeader(off, length int64) *string {
	switch {
	case length < 0 && off == 0:
		return nil
	case length < 0:
		return aws.String(fmt.Sprintf("bytes=%d-", off))
	default:
		return aws.String(fmt.Sprintf("bytes=%d-%d", off, off+length-1))
	}
}

type span struct{ length, total int64 }

// spanOf checks that the answer is the range asked for, cut at most at the object's end.
func spanOf(out *s3.GetObjectOutput, off, length int64) (span, error) {
	if out.ContentLength == nil || *out.ContentLength < 0 {
		return span{}, fmt.Errorf("the answer has no length")
	}
	got := *out.ContentLength
	if out.ContentRange == nil {
		// The whole object: right if that was asked for, or if it all lies within the range.
		if off == 0 && (length < 0 || got <= length) {
			return span{got, got}, nil
		}
		return span{}, fmt.Errorf("asked for %d+%d, got a whole object of %d bytes", off, length, got)
	}
	first, last, total, err := parseContentRange(*out.ContentRange)
	if err != nil {
		return span{}, err
	}
	want := total - off
	if length >= 0 {
		want = min(want, length)
	}
	if first != off || last-first+1 != want || got != want {
		return span{}, fmt.Errorf("asked for %d+%d, got Content-Range %q of %d bytes", off, length, *out.ContentRange, got)
	}
	return span{got, total}, nil
}

// parseContentRange reads "bytes first-last/total" (RFC 9110, 14.4).
func parseContentRange(v string) (first, last, total int64, err error) {
	if _, err = fmt.Sscanf(v, "bytes %d-%d/%d", &first, &last, &total); err != nil {
		return 0, 0, 0, fmt.Errorf("Content-Range %q: %w", v, err)
	}
	if first < 0 || last < first || total <= last {
		return 0, 0, 0, fmt.Errorf("Content-Range %q makes no sense", v)
	}
	return first, last, total, nil
}

// body delivers exactly the announced bytes or an error, and gives up on a store that has gone silent.
type body struct {
	r      io.ReadCloser
	left   int64
	idle   time.Duration
	timer  *time.Timer // cancels the request when it fires; armed only while a Read waits
	cancel context.CancelFunc
	silent bool // the timer has fired
	what   string
}

func newBody(r io.ReadCloser, length int64, idle time.Duration, cancel context.CancelFunc, what string) *body {
	b := &body{r: r, left: length, idle: idle, cancel: cancel, what: what}
	b.timer = time.AfterFunc(idle, cancel)
	b.timer.Stop()
	return b
}

func (b *body) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	b.timer.Reset(b.idle)
	n, err := b.r.Read(p)
	b.silent = !b.timer.Stop() || b.silent
	b.left -= int64(n)
	switch {
	case b.left == 0:
		return n, nil
	case err == nil:
		return n, nil
	case errors.Is(err, io.EOF):
		err = io.ErrUnexpectedEOF
	case b.silent:
		err = fmt.Errorf("no byte for %v: %w", b.idle, io.ErrUnexpectedEOF)
	}
	return n, b.fail(err)
}

// fail: whatever ends a body early is the network's doing, unless the caller cancelled. Every early end is an
// io.ErrUnexpectedEOF to the caller.
func (b *body) fail(err error) error {
	if objcache.KindOf(err) == objcache.Interrupted {
		return objcache.Errorf(objcache.Interrupted, "%s: body: %w", b.what, err)
	}
	return objcache.Errorf(objcache.Unavailable, "%s: body: %d bytes missing (%v): %w", b.what, b.left, err, io.ErrUnexpectedEOF)
}

// Close gives the connection back when the body was read to its end, and drops it otherwise.
func (b *body) Close() error {
	b.timer.Stop()
	err := b.r.Close()
	b.cancel()
	return err
}

func lower(meta map[string]string) map[string]string {
	m := make(map[string]string, len(meta))
	for k, v := range meta {
		m[strings.ToLower(k)] = v
	}
	return m
}
