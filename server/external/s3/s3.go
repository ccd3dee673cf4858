// Package s3 is external storage over the S3 protocol: one bucket through aws-sdk-go-v2, the only package that imports it.
// It promises the kinds of package external for every error, that no byte of a body is lost or added unnoticed, and exactly
// one request per call. It does not know retries, limits or metrics; the decorators of package external do.
package s3

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/external"
)

// Store is one bucket. It is safe for concurrent use.
type Store struct {
	bucket string
	client *s3.Client
	idle   time.Duration // longest wait for the next byte of a body
	caps   atomic.Pointer[external.Capabilities]
}

var _ external.Store = (*Store)(nil)

// Open prepares a client for the bucket. It sends nothing: a wrong endpoint or wrong keys show at the first request.
// Errors: Invalid for a configuration that cannot work.
func Open(ctx context.Context, c Config) (*Store, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	client, err := newClient(ctx, c)
	if err != nil {
		return nil, err
	}
	s := &Store{bucket: c.Bucket, client: client, idle: c.responseTimeout()}
	s.caps.Store(&external.Capabilities{})
	return s, nil
}

// CreateBucket makes the bucket; one that is the caller's already is success. For tests and development clusters.
func (s *Store) CreateBucket(ctx context.Context) error {
	_, err := s.client.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: &s.bucket})
	if err != nil && !hasCode(err, "BucketAlreadyOwnedByYou") {
		return s.fail(ctx, "create bucket", "", err)
	}
	return nil
}

// Capabilities is what the last successful Probe found; nothing before.
func (s *Store) Capabilities() external.Capabilities { return *s.caps.Load() }

// Probe finds what the store honours, with keys under prefix that are removed again, and remembers it for Capabilities.
// In a bucket that cannot be written it finds nothing and is no error. Its requests are retried. Errors: Unavailable,
// Interrupted.
func (s *Store) Probe(ctx context.Context, prefix string) (external.Capabilities, error) {
	caps, err := external.Probe(ctx, external.Retry(s, external.RetryConfig{}), prefix)
	if err != nil {
		return external.Capabilities{}, err
	}
	s.caps.Store(&caps)
	return caps, nil
}

// checkKey refuses what the SDK would turn into a request on the bucket.
func (s *Store) checkKey(what, key string) error {
	if key == "" {
		return objcache.Errorf(objcache.Invalid, "s3: %s in bucket %s: empty key", what, s.bucket)
	}
	return nil
}

func unquote(etag *string) string { return strings.Trim(aws.ToString(etag), `"`) }

// quoted is an If-Match value; nil for no condition.
func quoted(etag string) *string {
	if etag == "" {
		return nil
	}
	return aws.String(`"` + etag + `"`)
}

// ifNone is an If-None-Match value; nil for no condition.
func ifNone(c external.Condition) *string {
	if !c.IfNone {
		return nil
	}
	return aws.String("*")
}
