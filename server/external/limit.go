package external

import (
	"context"
	"io"
	"sync"

	"github.com/objcache/objcache"
)

// Limit lets at most n requests be under way at once; others wait for a place or for their context. A Get keeps its place
// until its body is closed, so whoever holds a body must not wait for another request without end.
func Limit(s Store, n int) Store {
	l := &limit{s: s, places: make(chan struct{}, max(1, n))}
	l.around = around{Store: s, run: l.do}
	return l
}

type limit struct {
	around
	s      Store
	places chan struct{}
}

func (l *limit) do(ctx context.Context, op Op, request func(context.Context) error) error {
	if err := l.enter(ctx, op); err != nil {
		return err
	}
	defer l.leave()
	return request(ctx)
}

func (l *limit) enter(ctx context.Context, op Op) error {
	select {
	case l.places <- struct{}{}:
		return nil
	case <-ctx.Done():
		return objcache.Errorf(objcache.KindOf(ctx.Err()), "external: %s: wait for one of %d places: %w", op, cap(l.places), ctx.Err())
	}
}

func (l *limit) leave() { <-l.places }

func (l *limit) Get(ctx context.Context, key string, off, length int64, ifMatch string) (io.ReadCloser, Object, error) {
	if err := l.enter(ctx, OpGet); err != nil {
		return nil, Object{}, err
	}
	body, obj, err := l.s.Get(ctx, key, off, length, ifMatch)
	if err != nil {
		l.leave()
		return nil, Object{}, err
	}
	return &limitBody{ReadCloser: body, leave: sync.OnceFunc(l.leave)}, obj, nil
}

type limitBody struct {
	io.ReadCloser
	leave func()
}

func (b *limitBody) Close() error {
	defer b.leave()
	return b.ReadCloser.Close()
}
