// Package rpc is what processes say to each other: generated messages and services, and the one table between kinds of error
// and their form on the wire.
package rpc

import (
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/objcache/objcache"
)

// FailureOf is an error's form on the wire; nil for nil.
func FailureOf(err error) *Failure {
	if err == nil {
		return nil
	}
	f := &Failure{Kind: uint32(objcache.KindOf(err)), Message: err.Error()}
	var held interface{ HeldBy() objcache.Ino }
	if errors.As(err, &held) {
		f.HeldBy = uint64(held.HeldBy())
	}
	return f
}

// Err is the error that a failure stands for; nil for nil.
func (f *Failure) Err() error {
	if f == nil {
		return nil
	}
	return &remoteError{kind: objcache.Kind(f.GetKind()), message: f.GetMessage(), heldBy: objcache.Ino(f.GetHeldBy())}
}

type remoteError struct {
	kind    objcache.Kind
	message string
	heldBy  objcache.Ino
}

func (e *remoteError) Error() string        { return e.message }
func (e *remoteError) Unwrap() error        { return e.kind }
func (e *remoteError) HeldBy() objcache.Ino { return e.heldBy }

// FromStatus gives an error of a call a kind: what the transport says is never the outcome of the operation, so all of it is
// Unavailable (outcome unknown) but a cancelled call, which is Interrupted, and what can never work.
func FromStatus(err error) error {
	if err == nil {
		return nil
	}
	switch status.Code(err) {
	case codes.Canceled:
		return objcache.Errorf(objcache.Interrupted, "call: %w", err)
	case codes.Unimplemented:
		return objcache.Errorf(objcache.NotSupported, "call: %w", err)
	case codes.PermissionDenied, codes.Unauthenticated:
		return objcache.Errorf(objcache.Permission, "call: %w", err)
	case codes.InvalidArgument, codes.ResourceExhausted:
		return objcache.Errorf(objcache.Invalid, "call: %w", err)
	case codes.DataLoss:
		return objcache.Errorf(objcache.Corrupt, "call: %w", err)
	}
	return objcache.Errorf(objcache.Unavailable, "call: %w", err)
}
