package s3

import (
	"context"
	"net/url"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/external"
)

// List asks for one page with URL encoding, so that keys may hold bytes that XML cannot.
func (s *Store) List(ctx context.Context, r external.ListRequest) (external.Page, error) {
	in := &s3.ListObjectsV2Input{Bucket: &s.bucket, Prefix: &r.Prefix, EncodingType: types.EncodingTypeUrl}
	if r.Delimiter != "" {
		in.Delimiter = &r.Delimiter
	}
	if r.Token != "" {
		in.ContinuationToken = &r.Token
	} else if r.After != "" {
		in.StartAfter = &r.After
	}
	if r.MaxKeys > 0 {
		in.MaxKeys = aws.Int32(int32(min(r.MaxKeys, 1000)))
	}
	out, err := s.client.ListObjectsV2(ctx, in)
	if err != nil {
		return external.Page{}, s.fail(ctx, "list", r.Prefix, err)
	}
	page, err := pageOf(out)
	if err != nil {
		return external.Page{}, objcache.Errorf(objcache.IO, "s3: list %s: %w", name(s.bucket, r.Prefix), err)
	}
	if aws.ToBool(out.IsTruncated) && page.Next == "" {
		return external.Page{}, objcache.Errorf(objcache.IO, "s3: list %s: more to come, but no token", name(s.bucket, r.Prefix))
	}
	return page, nil
}

func pageOf(out *s3.ListObjectsV2Output) (external.Page, error) {
	decode := decoder(out.EncodingType)
	page := external.Page{
		Objects:  make([]external.Object, 0, len(out.Contents)),
		Prefixes: make([]string, 0, len(out.CommonPrefixes)),
	}
	for _, o := range out.Contents {
		key, err := decode(o.Key)
		if err != nil {
			return page, err
		}
		page.Objects = append(page.Objects, external.Object{
			Key: key, Size: aws.ToInt64(o.Size), ETag: unquote(o.ETag), Modified: aws.ToTime(o.LastModified),
		})
	}
	for _, p := range out.CommonPrefixes {
		prefix, err := decode(p.Prefix)
		if err != nil {
			return page, err
		}
		page.Prefixes = append(page.Prefixes, prefix)
	}
	if aws.ToBool(out.IsTruncated) {
		page.Next = aws.ToString(out.NextContinuationToken)
	}
	return page, nil
}

// decoder undoes the encoding that the answer says it has: a store may ignore the wish for one. Stores encode as in a
// query, where + is a space.
func decoder(t types.EncodingType) func(*string) (string, error) {
	if t != types.EncodingTypeUrl {
		return func(v *string) (string, error) { return aws.ToString(v), nil }
	}
	return func(v *string) (string, error) { return url.QueryUnescape(aws.ToString(v)) }
}

// ListUploads pages through the uploads whose key begins with key and keeps those of exactly that key.
func (s *Store) ListUploads(ctx context.Context, key string) ([]external.Upload, error) {
	if err := s.checkKey("list uploads", key); err != nil {
		return nil, err
	}
	in := &s3.ListMultipartUploadsInput{Bucket: &s.bucket, Prefix: &key, EncodingType: types.EncodingTypeUrl}
	var ups []external.Upload
	for {
		out, err := s.client.ListMultipartUploads(ctx, in)
		if err != nil {
			return nil, s.fail(ctx, "list uploads of", key, err)
		}
		decode := decoder(out.EncodingType)
		for _, u := range out.Uploads {
			k, err := decode(u.Key)
			if err != nil {
				return nil, objcache.Errorf(objcache.IO, "s3: list uploads of %s: %w", name(s.bucket, key), err)
			}
			if k == key {
				up := external.Upload{Key: k, ID: aws.ToString(u.UploadId), Initiated: aws.ToTime(u.Initiated)}
				if u.Initiator != nil {
					up.Initiator = aws.ToString(u.Initiator.ID)
				}
				ups = append(ups, up)
			}
		}
		if !aws.ToBool(out.IsTruncated) {
			return ups, nil
		}
		nextKey, err := decode(out.NextKeyMarker)
		if err != nil {
			return nil, objcache.Errorf(objcache.IO, "s3: list uploads of %s: %w", name(s.bucket, key), err)
		}
		if nextKey == aws.ToString(in.KeyMarker) && aws.ToString(out.NextUploadIdMarker) == aws.ToString(in.UploadIdMarker) {
			return nil, objcache.Errorf(objcache.IO, "s3: list uploads of %s: the store repeats its page", name(s.bucket, key))
		}
		in.KeyMarker, in.UploadIdMarker = &nextKey, out.NextUploadIdMarker
	}
}
