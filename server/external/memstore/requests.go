package memstore

import (
	"context"
	"io"
	"maps"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/external"
)

// Head returns what Put stored.
func (s *Store) Head(ctx context.Context, key string) (obj external.Object, err error) {
	err = s.request(ctx, external.OpHead, key, func() error {
		o, err := s.lookupLocked(key)
		if err == nil {
			obj = o.describe(key)
		}
		return err
	})
	return obj, err
}

// Get opens a range; the bytes are those of the moment of the call, whatever is written later.
func (s *Store) Get(ctx context.Context, key string, off, length int64, ifMatch string) (io.ReadCloser, external.Object, error) {
	var obj external.Object
	b := &body{s: s, ctx: ctx, cut: -1}
	hit, err := s.requestFaults(ctx, external.OpGet, key, func() error {
		o, err := s.lookupLocked(key)
		if err != nil {
			return err
		}
		if ifMatch != "" && o.etag != ifMatch {
			return fail(objcache.Precondition, key, "has ETag %s, wanted %s", o.etag, ifMatch)
		}
		obj = o.describe(key)
		b.data, err = cutRange(key, o.data, off, length)
		return err
	})
	if err != nil {
		return nil, external.Object{}, err
	}
	for _, f := range hit {
		if f.Cut != nil {
			b.cut = *f.Cut
		}
	}
	return b, obj, nil
}

func cutRange(key string, data []byte, off, length int64) ([]byte, error) {
	size := int64(len(data))
	if off < 0 || length == 0 || off >= size && !(off == 0 && length < 0) {
		return nil, fail(objcache.Invalid, key, "of %d bytes: range %d+%d", size, off, length)
	}
	if length < 0 || length > size-off {
		length = size - off
	}
	return data[off : off+length], nil
}

// Put writes a whole object.
func (s *Store) Put(ctx context.Context, key string, body external.Body, meta map[string]string, c external.Condition) (etag string, err error) {
	if err := checkWrite(key, meta); err != nil {
		return "", err
	}
	data, err := s.readBody(ctx, body)
	if err != nil {
		return "", err
	}
	err = s.request(ctx, external.OpPut, key, func() error {
		if err := s.checkLocked(key, c, !s.config.Ignores.ConditionalPut); err != nil {
			return err
		}
		etag = s.putLocked(key, data, etagOf(data), meta)
		return nil
	})
	return etag, err
}

// Copy copies inside the bucket.
func (s *Store) Copy(ctx context.Context, dst, src, srcETag string, meta map[string]string, c external.Condition) (etag string, err error) {
	if err := checkWrite(dst, meta); err != nil {
		return "", err
	}
	err = s.request(ctx, external.OpCopy, dst, func() error {
		o, err := s.sourceLocked(src, srcETag)
		if err != nil {
			return err
		}
		if err := s.checkLocked(dst, c, !s.config.Ignores.ConditionalPut); err != nil {
			return err
		}
		if meta == nil {
			meta = o.meta
		}
		etag = s.putLocked(dst, o.data, etagOf(o.data), meta)
		return nil
	})
	return etag, err
}

// Delete removes a key; a missing one is success.
func (s *Store) Delete(ctx context.Context, key string) error {
	if key == "" {
		return fail(objcache.Invalid, key, "is empty")
	}
	return s.request(ctx, external.OpDelete, key, func() error {
		s.deleteLocked(key)
		return nil
	})
}

func (s *Store) lookupLocked(key string) (*object, error) {
	if key == "" {
		return nil, fail(objcache.Invalid, key, "is empty")
	}
	o, ok := s.mu.objects[key]
	if !ok {
		return nil, fail(objcache.NotExist, key, "is not there")
	}
	return o, nil
}

func (s *Store) sourceLocked(src, srcETag string) (*object, error) {
	o, err := s.lookupLocked(src)
	if err != nil {
		return nil, err
	}
	if srcETag != "" && o.etag != srcETag && !s.config.Ignores.CopyIfMatch {
		return nil, fail(objcache.Precondition, src, "has ETag %s, wanted %s", o.etag, srcETag)
	}
	return o, nil
}

func (o *object) describe(key string) external.Object {
	meta := maps.Clone(o.meta)
	if meta == nil {
		meta = map[string]string{}
	}
	return external.Object{Key: key, Size: int64(len(o.data)), ETag: o.etag, Modified: o.modified, Meta: meta}
}

func checkWrite(key string, meta map[string]string) error {
	switch {
	case key == "":
		return fail(objcache.Invalid, key, "is empty")
	case len(key) > 1024:
		return fail(objcache.NameTooLong, key, "has %d bytes", len(key))
	}
	return external.CheckMeta(meta)
}
