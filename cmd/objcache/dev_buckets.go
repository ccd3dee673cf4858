package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/dev"
	"github.com/objcache/objcache/server/external"
	"github.com/objcache/objcache/server/external/s3"
)

// buckets is dev.Storage on S3.
type buckets struct{}

// bucketDeadline bounds the question whether a bucket can be used.
const bucketDeadline = 15 * time.Second

func (buckets) Make(ctx context.Context, b dev.Bucket) error {
	st, err := open(ctx, b)
	if err != nil {
		return err
	}
	return st.CreateBucket(ctx)
}

func (buckets) Check(ctx context.Context, b dev.Bucket) error {
	ctx, cancel := context.WithTimeout(ctx, bucketDeadline)
	defer cancel()
	st, err := open(ctx, b)
	if err != nil {
		return err
	}
	_, err = st.List(ctx, external.ListRequest{MaxKeys: 1})
	k := objcache.KindOf(err)
	switch {
	case err == nil:
		return nil
	case strings.Contains(err.Error(), "NoSuchBucket"):
		return objcache.Errorf(objcache.NotExist, "bucket %q at %s (make it first)", b.BucketName, where(b))
	case k == objcache.Permission:
		return objcache.Errorf(k, "bucket %q at %s: the keys are wrong or may not list it (--access-key, --secret-key)", b.BucketName, where(b))
	}
	return objcache.Errorf(k, "bucket %q: %s cannot be used (--s3): %w", b.BucketName, where(b), innermost(err))
}

func where(b dev.Bucket) string {
	if b.Endpoint == "" {
		return "AWS"
	}
	return b.Endpoint
}

// innermost is the cause at the bottom, without the layers that only name themselves.
func innermost(err error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		if _, ok := next.(interface{ Timeout() bool }); ok && errors.Unwrap(next) != nil && strings.HasPrefix(next.Error(), "dial ") {
			return next // a *net.OpError names the address
		}
		err = next
	}
}

func open(ctx context.Context, b dev.Bucket) (*s3.Store, error) {
	c := s3.Config{
		Bucket: b.BucketName, Endpoint: b.Endpoint, Region: b.Region, AccessKey: b.AccessKey, SecretKey: b.SecretKey, PathStyle: b.PathStyle,
		ResponseTimeout: bucketDeadline,
	}
	if b.CABundle != "" {
		pem, err := os.ReadFile(b.CABundle)
		if err != nil {
			return nil, objcache.Errorf(objcache.Invalid, "bucket %s: caBundle: %w", b.BucketName, err)
		}
		c.CABundle = pem
	}
	return s3.Open(ctx, c)
}
