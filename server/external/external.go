// Package external is the contract of external storage (an S3-compatible bucket) and the decorators every store
// is wrapped in: bounded retries, request limits, metrics. It promises one meaning for every error and every
// conditional request, whatever the store. It knows nothing of files, chunks or servers.
package external

import (
	"context"
	"io"
	"time"
)

// Object is what the store says of one key. Meta is set by Head and Get only (a listing has none); its keys are lower case,
// its values printable ASCII (a write with others is Invalid).
type Object struct {
	Key      string
	Size     int64
	ETag     string // without the quotes
	Modified time.Time
	Meta     map[string]string
}

// ListRequest asks for one page of the keys that begin with Prefix, in the order of their UTF-8 bytes.
type ListRequest struct {
	Prefix    string
	Delimiter string // "" or "/"
	Token     string // Page.Next of the page before; "" for the first
	After     string // only keys behind this one; first page only
	MaxKeys   int    // 0: the store's own limit (1000)
}

// Page is one answer to a listing.
type Page struct {
	Objects  []Object
	Prefixes []string // common prefixes, each ending with the delimiter
	Next     string   // "" after the last page
}

// Condition makes a write conditional. The zero value asks for nothing.
type Condition struct {
	IfMatch string // the key's present ETag
	IfNone  bool   // the key must not exist
}

// Body is what a write sends: it can be read again from its beginning for a retry. Size is its length in bytes.
// The store seeks it to 0 at every attempt and does not touch it after it has returned. *bytes.Reader and
// *io.SectionReader are bodies.
type Body interface {
	io.ReadSeeker
	Size() int64
}

// Part is one finished part of a multipart upload.
type Part struct {
	Number int32 // 1..10000
	ETag   string
}

// Upload is a multipart upload under way.
type Upload struct {
	Key       string
	ID        string
	Initiated time.Time
	Initiator string // who, as the store names them; empty: it does not say
}

// Reader reads names and bytes. All of it may be retried.
//
// Errors: NotExist only for a 404 of a key; Permission for 403 and bad credentials; Precondition for 412; Unavailable once the
// retries for 5xx, timeouts, resets and short bodies are used up; Invalid for a request no store can take (an empty key); IO
// for anything the store answers that makes no sense, and for a bucket that does not exist.
type Reader interface {
	List(ctx context.Context, r ListRequest) (Page, error)
	Head(ctx context.Context, key string) (Object, error)
	// Get reads length bytes from off, fewer if the object ends before (length < 0: to the end). A length of 0, and an off at
	// or behind the end other than (0, -1), are Invalid. With ifMatch set the bytes are of that ETag or the error is
	// Precondition. Object.Size is the whole object's. The body fails with io.ErrUnexpectedEOF (of kind Unavailable) when the
	// store sends less than it announced.
	Get(ctx context.Context, key string, off, length int64, ifMatch string) (io.ReadCloser, Object, error)
}

// Writer changes single objects. A repeated request is harmless, but its outcome may be unknown after an error of kind
// Unavailable: the caller decides by Head.
type Writer interface {
	Put(ctx context.Context, key string, body Body, meta map[string]string, c Condition) (etag string, err error)
	// Copy copies src (of ETag srcETag, if not "") to dst inside the bucket; meta nil keeps the source's metadata. Up to 5 GiB.
	Copy(ctx context.Context, dst, src, srcETag string, meta map[string]string, c Condition) (etag string, err error)
	// Delete removes a key; a missing key is success.
	Delete(ctx context.Context, key string) error
}

// Multipart writes large objects. Parts are 5 MiB to 5 GiB (the last may be shorter), at most 10,000.
type Multipart interface {
	CreateUpload(ctx context.Context, key string, meta map[string]string) (id string, err error)
	UploadPart(ctx context.Context, key, id string, number int32, body Body) (etag string, err error)
	CopyPart(ctx context.Context, key, id string, number int32, src string, off, length int64, srcETag string) (etag string, err error)
	// CompleteUpload makes the parts the object. NoUpload means the store does not know the upload (any more): Head decides.
	CompleteUpload(ctx context.Context, key, id string, parts []Part, c Condition) (etag string, err error)
	// AbortUpload makes sure that the upload cannot complete any more (it may have before); an unknown one is success.
	AbortUpload(ctx context.Context, key, id string) error
	// ListUploads lists uploads of exactly this key.
	ListUploads(ctx context.Context, key string) ([]Upload, error)
}

// Store is one bucket.
type Store interface {
	Reader
	Writer
	Multipart
	// Capabilities says what Probe found this store to honour.
	Capabilities() Capabilities
}

// Capabilities is what a store honours beyond the common ground; shown in status.
type Capabilities struct {
	ConditionalPut      bool `json:"conditionalPut"`      // If-None-Match: * and If-Match on Put
	ConditionalComplete bool `json:"conditionalComplete"` // the same on CompleteMultipartUpload
	CopyPart            bool `json:"copyPart"`
	CopyIfMatch         bool `json:"copyIfMatch"` // x-amz-copy-source-if-match
}
