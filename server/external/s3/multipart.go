package s3

import (
	"context"
	"errors"
	"fmt"

	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/smithy-go"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/external"
)

// CreateUpload begins a multipart upload; the store keeps its parts until it is completed or aborted.
func (s *Store) CreateUpload(ctx context.Context, key string, meta map[string]string) (string, error) {
	if err := s.checkWrite("create upload of", key, meta); err != nil {
		return "", err
	}
	out, err := s.client.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{Bucket: &s.bucket, Key: &key, Metadata: meta})
	if err != nil {
		return "", s.fail(ctx, "create upload of", key, err)
	}
	if aws.ToString(out.UploadId) == "" {
		return "", objcache.Errorf(objcache.IO, "s3: create upload of %s: the answer has no id", name(s.bucket, key))
	}
	return *out.UploadId, nil
}

// UploadPart writes one part; writing the same number again replaces it.
func (s *Store) UploadPart(ctx context.Context, key, id string, number int32, body external.Body) (string, error) {
	if err := s.checkUpload("upload part of", key, id); err != nil {
		return "", err
	}
	if err := rewind(body); err != nil {
		return "", objcache.Errorf(objcache.IO, "s3: upload part %d of %s: %w", number, name(s.bucket, key), err)
	}
	out, err := s.client.UploadPart(ctx, &s3.UploadPartInput{
		Bucket: &s.bucket, Key: &key, UploadId: &id, PartNumber: &number, Body: body, ContentLength: aws.Int64(body.Size()),
	}, unsignedPayload)
	if err != nil {
		return "", s.fail(ctx, fmt.Sprintf("upload part %d of", number), key, err)
	}
	return unquote(out.ETag), nil
}

// CopyPart makes bytes [off, off+length) of src a part, if src still has srcETag.
func (s *Store) CopyPart(ctx context.Context, key, id string, number int32, src string, off, length int64, srcETag string) (string, error) {
	if err := errors.Join(s.checkUpload("copy part of", key, id), s.checkKey("copy part from", src)); err != nil {
		return "", err
	}
	if off < 0 || length <= 0 {
		return "", objcache.Errorf(objcache.Invalid, "s3: copy part %d of %s: range %d+%d", number, name(s.bucket, key), off, length)
	}
	out, err := s.client.UploadPartCopy(ctx, &s3.UploadPartCopyInput{
		Bucket: &s.bucket, Key: &key, UploadId: &id, PartNumber: &number, CopySource: s.copySource(src), CopySourceIfMatch: quoted(srcETag),
		CopySourceRange: aws.String(fmt.Sprintf("bytes=%d-%d", off, off+length-1)),
	})
	if err != nil {
		return "", s.fail(ctx, fmt.Sprintf("copy part %d from %s of", number, name(s.bucket, src)), key, err)
	}
	if out.CopyPartResult == nil || out.CopyPartResult.ETag == nil {
		return "", objcache.Errorf(objcache.Unavailable, "s3: copy part %d of %s: the answer has no ETag", number, name(s.bucket, key))
	}
	return unquote(out.CopyPartResult.ETag), nil
}

// CompleteUpload makes the parts, in the order given, the object. A 200 whose body is an error is an error.
func (s *Store) CompleteUpload(ctx context.Context, key, id string, parts []external.Part, c external.Condition) (string, error) {
	if err := s.checkUpload("complete upload of", key, id); err != nil {
		return "", err
	}
	list := make([]types.CompletedPart, len(parts))
	for i, p := range parts {
		list[i] = types.CompletedPart{PartNumber: aws.Int32(p.Number), ETag: quoted(p.ETag)}
	}
	out, err := s.client.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
		Bucket: &s.bucket, Key: &key, UploadId: &id, MultipartUpload: &types.CompletedMultipartUpload{Parts: list},
		IfMatch: quoted(c.IfMatch), IfNoneMatch: ifNone(c),
	})
	if err != nil {
		return "", s.fail(ctx, "complete upload of", key, err)
	}
	if out.ETag == nil {
		return "", objcache.Errorf(objcache.Unavailable, "s3: complete upload of %s: the answer has no ETag", name(s.bucket, key))
	}
	return unquote(out.ETag), nil
}

// AbortUpload drops an upload and its parts; an unknown one is success.
func (s *Store) AbortUpload(ctx context.Context, key, id string) error {
	if err := s.checkUpload("abort upload of", key, id); err != nil {
		return err
	}
	_, err := s.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &s.bucket, Key: &key, UploadId: &id})
	if err != nil && !hasCode(err, "NoSuchUpload") {
		return s.fail(ctx, "abort upload of", key, err)
	}
	return nil
}

func (s *Store) checkUpload(what, key, id string) error {
	if id == "" {
		return objcache.Errorf(objcache.NoUpload, "s3: %s %s: empty upload id", what, name(s.bucket, key))
	}
	return s.checkKey(what, key)
}

// unsignedPayload leaves the bytes out of the signature: hashing them first costs a third of the upload rate. It is for
// stores with an endpoint of their own; to AWS the SDK sends a checksum behind the bytes instead.
func unsignedPayload(o *s3.Options) {
	if o.RequestChecksumCalculation != aws.RequestChecksumCalculationWhenRequired {
		return
	}
	o.APIOptions = append(o.APIOptions, v4.SwapComputePayloadSHA256ForUnsignedPayloadMiddleware)
}

func hasCode(err error, code string) bool {
	var api smithy.APIError
	return errors.As(err, &api) && api.ErrorCode() == code
}
