package s3

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/objcache/objcache"
)

// kindOfCode is the table for the codes of S3 error bodies whose kind their HTTP status does not tell.
// Source: the S3 API reference's list of error responses, and the extra codes of MinIO and Ceph.
var kindOfCode = map[string]objcache.Kind{
	"NoSuchUpload": objcache.NoUpload,
	// A bucket that is gone is a mistake to be reported, never the statement that every file in it is gone.
	"NoSuchBucket": objcache.IO,

	"PreconditionFailed": objcache.Precondition,
	// Another request on the key was under way: nothing is said about the condition, and the request is to be sent again.
	"ConditionalRequestConflict": objcache.Unavailable,

	// These arrive with a 4xx status but pass by themselves.
	"RequestTimeout":              objcache.Unavailable,
	"RequestTimeTooSkewed":        objcache.Unavailable, // the SDK corrects its clock by the answer
	"OperationAborted":            objcache.Unavailable,
	"IncompleteBody":              objcache.Unavailable,
	"BadDigest":                   objcache.Unavailable,
	"XAmzContentSHA256Mismatch":   objcache.Unavailable,
	"XAmzContentChecksumMismatch": objcache.Unavailable,
	"SlowDown":                    objcache.Unavailable,
	"Throttling":                  objcache.Unavailable,
	"ThrottlingException":         objcache.Unavailable,
	"RequestLimitExceeded":        objcache.Unavailable,
	"InternalError":               objcache.Unavailable, // also in the body of a 200
	"ServiceUnavailable":          objcache.Unavailable,

	"ExpiredToken":                 objcache.Permission,
	"InvalidToken":                 objcache.Permission,
	"AuthorizationHeaderMalformed": objcache.Permission,

	"KeyTooLongError":    objcache.NameTooLong,
	"EntityTooLarge":     objcache.TooLarge,
	"QuotaExceeded":      objcache.NoSpace,
	"XMinioStorageFull":  objcache.NoSpace,
	"NotImplemented":     objcache.NotSupported,
	"XMinioInvalidRange": objcache.Invalid,
}

// kindOfStatus is the table for everything else that came with an HTTP status.
func kindOfStatus(status int) objcache.Kind {
	switch status {
	case http.StatusNotFound:
		return objcache.NotExist
	case http.StatusUnauthorized, http.StatusForbidden:
		return objcache.Permission
	case http.StatusPreconditionFailed:
		return objcache.Precondition
	case http.StatusRequestTimeout, http.StatusTooManyRequests:
		return objcache.Unavailable
	case http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return objcache.NotSupported
	case http.StatusInsufficientStorage:
		return objcache.NoSpace
	case http.StatusRequestEntityTooLarge:
		return objcache.TooLarge
	}
	switch {
	case status >= 500:
		return objcache.Unavailable
	case status >= 400:
		return objcache.Invalid
	default:
		// A success or a redirect that the SDK could not read: a success cut short is the network's doing.
		if status >= 300 {
			return objcache.IO
		}
		return objcache.Unavailable
	}
}

// kindOf classifies an error of the SDK. The order matters: what the caller did, what the store said, what the network did.
func kindOf(err error) objcache.Kind {
	if k := objcache.KindOf(err); k != objcache.Unknown {
		return k
	}
	var api smithy.APIError
	if errors.As(err, &api) {
		if k, ok := kindOfCode[api.ErrorCode()]; ok {
			return k
		}
	}
	var re *smithyhttp.ResponseError
	if errors.As(err, &re) && re.HTTPStatusCode() > 0 {
		return kindOfStatus(re.HTTPStatusCode())
	}
	return kindOfTransport(err)
}

// kindOfTransport classifies what happened before any answer.
func kindOfTransport(err error) objcache.Kind {
	var cert *tls.CertificateVerificationError
	var params smithy.InvalidParamsError
	var serial *smithy.SerializationError
	var send *smithyhttp.RequestSendError
	var nerr net.Error
	switch {
	case errors.As(err, &cert):
		return objcache.IO
	case errors.As(err, &params), errors.As(err, &serial):
		return objcache.Invalid
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return objcache.Unavailable
	case errors.As(err, &send), errors.As(err, &nerr):
		return objcache.Unavailable
	}
	return objcache.IO
}

// fail gives err its kind and names what was asked. A cancelled caller is Interrupted, whatever the SDK made of it.
func (s *Store) fail(ctx context.Context, what, key string, err error) error {
	kind := kindOf(err)
	if errors.Is(ctx.Err(), context.Canceled) {
		kind = objcache.Interrupted
	}
	return objcache.Errorf(kind, "s3: %s %s: %w", what, name(s.bucket, key), err)
}

func name(bucket, key string) string { return fmt.Sprintf("%s/%q", bucket, key) }
