package objcache

import (
	"context"
	"errors"
	"fmt"
)

// Kind is the one list of reasons for which an operation fails. Exactly three tables translate it:
// to errno (fuse), to and from gRPC status (server/rpc), and from S3 errors (server/external/s3).
type Kind uint8

// The kinds.
const (
	Unknown      Kind = iota // not one of ours: EIO
	NotExist                 // ENOENT
	Exist                    // EEXIST
	NotDir                   // ENOTDIR
	IsDir                    // EISDIR
	NotEmpty                 // ENOTEMPTY
	Stale                    // the inode is of another life, or its bytes are gone from external storage: ESTALE
	NotOwner                 // this group does not own the key under the request's view: ask again with a newer view
	Unavailable              // try again: restart, change of leader, network
	Conflict                 // lost a race (a precondition no longer holds, or wait-die): run again
	Superseded               // a newer version of the file exists: read its attributes and start again
	StageLost                // a chunk owner no longer has bytes staged before: stage them again
	Corrupt                  // bytes do not match their checksum: EIO
	NoSpace                  // ENOSPC
	Interrupted              // EINTR
	Invalid                  // EINVAL
	Permission               // EACCES: external storage refused
	NotPermitted             // EPERM
	CrossDevice              // EXDEV
	NameTooLong              // ENAMETOOLONG
	TooManyLinks             // EMLINK
	NoAttr                   // ENODATA: no such extended attribute
	TooLarge                 // EFBIG
	RangeError               // ERANGE
	NotSupported             // EOPNOTSUPP
	ReadOnly                 // EROFS
	IO                       // external storage or a disk failed for good: EIO
	Precondition             // an If-Match or If-None-Match did not hold (S3's 412)
	NoUpload                 // S3 does not know the multipart upload
	Busy                     // somebody else's lock is in the way: EAGAIN
	Fenced                   // the session has ended, nothing it asks for is done: EIO
)

var kindNames = [...]string{
	Unknown: "unknown error", NotExist: "does not exist", Exist: "already exists", NotDir: "not a directory", IsDir: "is a directory",
	NotEmpty: "directory not empty", Stale: "stale", NotOwner: "not the owner", Unavailable: "unavailable", Conflict: "conflict",
	Superseded: "superseded", StageLost: "staged bytes lost", Corrupt: "corrupt", NoSpace: "no space left", Interrupted: "interrupted",
	Invalid: "invalid argument", Permission: "permission denied", NotPermitted: "operation not permitted", CrossDevice: "cross-device link",
	NameTooLong: "name too long", TooManyLinks: "too many links", NoAttr: "no such attribute", TooLarge: "file too large", RangeError: "result too large",
	NotSupported: "not supported", ReadOnly: "read-only", IO: "input/output error", Precondition: "precondition failed", NoUpload: "no such upload",
	Busy: "locked by somebody else", Fenced: "the session has ended",
}

// Kinds lists every kind, for the tests of the translators.
func Kinds() []Kind {
	ks := make([]Kind, len(kindNames))
	for i := range ks {
		ks[i] = Kind(i)
	}
	return ks
}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Error makes a Kind itself an error, so that errors.Is(err, objcache.NotExist) reads well.
func (k Kind) Error() string { return k.String() }

// Errorf builds an error of a kind; format may wrap a cause with %w and should name the noun at hand.
func Errorf(k Kind, format string, args ...any) error {
	return &kindError{kind: k, err: fmt.Errorf(format, args...)}
}

type kindError struct {
	kind Kind
	err  error
}

func (e *kindError) Error() string        { return e.err.Error() + ": " + e.kind.String() }
func (e *kindError) Unwrap() error        { return e.err }
func (e *kindError) Is(target error) bool { return target == error(e.kind) }

// KindOf returns the kind of the outermost error that has one. A cancelled context is Interrupted, an expired one Unavailable.
func KindOf(err error) Kind {
	var ke *kindError
	var k Kind
	switch {
	case err == nil:
		return Unknown
	case errors.As(err, &ke):
		return ke.kind
	case errors.As(err, &k):
		return k
	case errors.Is(err, context.Canceled):
		return Interrupted
	case errors.Is(err, context.DeadlineExceeded):
		return Unavailable
	}
	return Unknown
}

// Transient reports whether the same request may succeed later without anybody's help.
func (k Kind) Transient() bool {
	return k == Unavailable || k == Conflict || k == NotOwner
}
