package s3

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/external"
)

// Put writes a whole object. When it returns nil the store has it durably, as far as the store promises that.
func (s *Store) Put(ctx context.Context, key string, body external.Body, meta map[string]string, c external.Condition) (string, error) {
	if err := s.checkWrite("put", key, meta); err != nil {
		return "", err
	}
	if err := rewind(body); err != nil {
		return "", objcache.Errorf(objcache.IO, "s3: put %s: %w", name(s.bucket, key), err)
	}
	out, err := s.client.PutObject(ctx, &s3.PutObjectInput{
		Bucket: &s.bucket, Key: &key, Body: body, ContentLength: aws.Int64(body.Size()), Metadata: meta,
		IfMatch: quoted(c.IfMatch), IfNoneMatch: ifNone(c),
	}, unsignedPayload)
	if err != nil {
		return "", s.fail(ctx, "put", key, err)
	}
	return unquote(out.ETag), nil
}

// Copy copies inside the bucket without moving bytes through here.
func (s *Store) Copy(ctx context.Context, dst, src, srcETag string, meta map[string]string, c external.Condition) (string, error) {
	if err := s.checkWrite("copy to", dst, meta); err != nil {
		return "", err
	}
	if err := s.checkKey("copy from", src); err != nil {
		return "", err
	}
	in := &s3.CopyObjectInput{
		Bucket: &s.bucket, Key: &dst, CopySource: s.copySource(src), CopySourceIfMatch: quoted(srcETag),
		IfMatch: quoted(c.IfMatch), IfNoneMatch: ifNone(c),
	}
	if meta != nil {
		in.Metadata, in.MetadataDirective = meta, types.MetadataDirectiveReplace
	}
	out, err := s.client.CopyObject(ctx, in)
	if err != nil {
		return "", s.fail(ctx, "copy "+name(s.bucket, src)+" to", dst, err)
	}
	if out.CopyObjectResult == nil || out.CopyObjectResult.ETag == nil {
		return "", objcache.Errorf(objcache.Unavailable, "s3: copy %s: the answer has no ETag", name(s.bucket, dst))
	}
	return unquote(out.CopyObjectResult.ETag), nil
}

// Delete removes a key; a missing one is success.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := s.checkKey("delete", key); err != nil {
		return err
	}
	_, err := s.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &s.bucket, Key: &key})
	if err != nil && !hasCode(err, "NoSuchKey") {
		return s.fail(ctx, "delete", key, err)
	}
	return nil
}

func (s *Store) checkWrite(what, key string, meta map[string]string) error {
	if err := s.checkKey(what, key); err != nil {
		return err
	}
	if err := external.CheckMeta(meta); err != nil {
		return fmt.Errorf("s3: %s %s: %w", what, name(s.bucket, key), err)
	}
	return nil
}

// copySource is "bucket/key" with every byte escaped but the slashes; the SDK sends it as it is.
func (s *Store) copySource(key string) *string {
	parts := strings.Split(key, "/")
	for i, p := range parts {
		parts[i] = strings.ReplaceAll(url.QueryEscape(p), "+", "%20")
	}
	return aws.String(s.bucket + "/" + strings.Join(parts, "/"))
}

func rewind(body external.Body) error {
	_, err := body.Seek(0, io.SeekStart)
	return err
}
