package fuse

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/objcache/objcache"
)

func TestErrno_EveryKindHasOneAndOnlyNotExistIsENOENT(t *testing.T) {
	for _, k := range objcache.Kinds() {
		e, ok := errnos[k]
		if !ok || e == 0 {
			t.Errorf("%v has no errno", k)
		}
		if (e == syscall.ENOENT) != (k == objcache.NotExist) {
			t.Errorf("%v is %v", k, e)
		}
		if k == objcache.Unknown {
			continue
		}
		if got := errnoOf(fmt.Errorf("open: %w", objcache.Errorf(k, "inode 7"))); got != e {
			t.Errorf("wrapped %v is %v, want %v", k, got, e)
		}
	}
}

func TestErrno_OfErrorsWithoutKind(t *testing.T) {
	for _, c := range []struct {
		err  error
		want syscall.Errno
	}{
		{nil, 0},
		{errors.New("strange"), syscall.EIO},
		{syscall.EFBIG, syscall.EFBIG},
		{fmt.Errorf("disk: %w", syscall.EROFS), syscall.EROFS},
		{context.Canceled, syscall.EINTR},
		{context.DeadlineExceeded, syscall.EIO},
	} {
		if got := errnoOf(c.err); got != c.want {
			t.Errorf("%v is %v, want %v", c.err, got, c.want)
		}
	}
}
