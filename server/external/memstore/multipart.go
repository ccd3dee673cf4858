package memstore

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"maps"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/external"
)

// CreateUpload begins an upload; ids grow, so that they sort by age.
func (s *Store) CreateUpload(ctx context.Context, key string, meta map[string]string) (id string, err error) {
	if err := checkWrite(key, meta); err != nil {
		return "", err
	}
	err = s.request(ctx, external.OpCreateUpload, key, func() error {
		s.mu.nextID++
		id = fmt.Sprintf("upload-%08d", s.mu.nextID)
		s.mu.uploads[id] = &upload{
			Upload: external.Upload{Key: key, ID: id, Initiated: time.Now().UTC()},
			meta:   maps.Clone(meta), parts: map[int32]part{},
		}
		return nil
	})
	return id, err
}

// UploadPart keeps one part; the same number again replaces it.
func (s *Store) UploadPart(ctx context.Context, key, id string, number int32, body external.Body) (etag string, err error) {
	data, err := s.readBody(ctx, body)
	if err != nil {
		return "", err
	}
	err = s.request(ctx, external.OpUploadPart, key, func() error {
		etag, err = s.addPartLocked(key, id, number, data)
		return err
	})
	return etag, err
}

// CopyPart makes a range of another object a part; unlike Get, the range must lie inside the object.
func (s *Store) CopyPart(ctx context.Context, key, id string, number int32, src string, off, length int64, srcETag string) (etag string, err error) {
	err = s.request(ctx, external.OpCopyPart, key, func() error {
		if s.config.Ignores.CopyPart {
			return fail(objcache.NotSupported, key, "copy part")
		}
		o, err := s.sourceLocked(src, srcETag)
		if err != nil {
			return err
		}
		if off < 0 || length <= 0 || off+length > int64(len(o.data)) {
			return fail(objcache.Invalid, src, "of %d bytes: range %d+%d", len(o.data), off, length)
		}
		etag, err = s.addPartLocked(key, id, number, o.data[off:off+length])
		return err
	})
	return etag, err
}

func (s *Store) addPartLocked(key, id string, number int32, data []byte) (string, error) {
	u, err := s.uploadLocked(key, id)
	if err != nil {
		return "", err
	}
	if number < 1 || number > 10000 {
		return "", fail(objcache.Invalid, key, "part number %d", number)
	}
	etag := etagOf(data)
	u.parts[number] = part{data: data, etag: etag}
	return etag, nil
}

func (s *Store) uploadLocked(key, id string) (*upload, error) {
	u, ok := s.mu.uploads[id]
	if !ok || u.Key != key || u.done != "" {
		return nil, fail(objcache.NoUpload, key, "upload %q", id)
	}
	return u, nil
}

// CompleteUpload makes the parts the object at once. An upload refused for its condition stays.
func (s *Store) CompleteUpload(ctx context.Context, key, id string, parts []external.Part, c external.Condition) (etag string, err error) {
	err = s.request(ctx, external.OpCompleteUpload, key, func() error {
		if u := s.mu.uploads[id]; u != nil && u.Key == key && u.done != "" && s.config.CompleteTwice {
			etag = u.done
			return nil
		}
		u, err := s.uploadLocked(key, id)
		if err != nil {
			return err
		}
		data, tag, err := s.joinLocked(u, parts)
		if err != nil {
			return err
		}
		if err := s.checkLocked(key, c, !s.config.Ignores.ConditionalComplete); err != nil {
			return err
		}
		etag = s.putLocked(key, data, tag, u.meta)
		u.parts, u.done = nil, etag
		return nil
	})
	return etag, err
}

// joinLocked follows S3: rising numbers, known ETags, no small part but the last; the ETag is the MD5 of the parts' MD5s and
// their number.
func (s *Store) joinLocked(u *upload, parts []external.Part) ([]byte, string, error) {
	if len(parts) == 0 {
		return nil, "", fail(objcache.Invalid, u.Key, "upload %q has no parts", u.ID)
	}
	var data bytes.Buffer
	sums := md5.New()
	for i, want := range parts {
		p, ok := u.parts[want.Number]
		switch {
		case !ok || p.etag != want.ETag:
			return nil, "", fail(objcache.Invalid, u.Key, "part %d has ETag %q, wanted %q", want.Number, p.etag, want.ETag)
		case i > 0 && want.Number <= parts[i-1].Number:
			return nil, "", fail(objcache.Invalid, u.Key, "part %d behind %d", want.Number, parts[i-1].Number)
		case i < len(parts)-1 && int64(len(p.data)) < s.config.MinPart:
			return nil, "", fail(objcache.Invalid, u.Key, "part %d has only %d bytes", want.Number, len(p.data))
		}
		data.Write(p.data)
		sum := md5.Sum(p.data)
		sums.Write(sum[:])
	}
	return data.Bytes(), fmt.Sprintf("%s-%d", hex.EncodeToString(sums.Sum(nil)), len(parts)), nil
}

// AbortUpload drops an upload; an unknown one is success.
func (s *Store) AbortUpload(ctx context.Context, key, id string) error {
	return s.request(ctx, external.OpAbortUpload, key, func() error {
		if u, ok := s.mu.uploads[id]; ok && u.Key == key && u.done == "" {
			delete(s.mu.uploads, id)
		}
		return nil
	})
}

// ListUploads lists the uploads under way of exactly this key.
func (s *Store) ListUploads(ctx context.Context, key string) (ups []external.Upload, err error) {
	err = s.request(ctx, external.OpListUploads, key, func() error {
		ups = s.uploadsLocked(func(k string) bool { return k == key })
		return nil
	})
	return ups, err
}
