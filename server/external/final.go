package external

import (
	"context"
	"errors"
	"io"

	"github.com/objcache/objcache"
)

// Final makes what is still Unavailable an IO error: whoever is above has no better time to wait than the retries below had, and to a
// program that asked for bytes it is EIO.
func Final(s Store) Store {
	return &final{around{s, func(ctx context.Context, _ Op, request func(context.Context) error) error {
		return exhausted(request(ctx))
	}}}
}

type final struct{ around }

func exhausted(err error) error {
	if errors.Is(err, objcache.Unavailable) {
		return objcache.Errorf(objcache.IO, "%w", err)
	}
	return err
}

// Get differs in that its body may fail too; that stays as it is, for the reader asks again.
func (f *final) Get(ctx context.Context, key string, off, length int64, ifMatch string) (io.ReadCloser, Object, error) {
	b, o, err := f.Store.Get(ctx, key, off, length, ifMatch)
	return b, o, exhausted(err)
}
