package memstore

import (
	"context"
	"slices"
	"strings"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/external"
)

// List returns keys in the order of their bytes. As in S3, objects and common prefixes together count against MaxKeys.
func (s *Store) List(ctx context.Context, r external.ListRequest) (page external.Page, err error) {
	err = s.request(ctx, external.OpList, r.Prefix, func() error {
		page, err = s.listLocked(r)
		return err
	})
	return page, err
}

// A token is the last thing listed: "k" and a key, or "p" and a common prefix, all of whose keys are done.
func (s *Store) listLocked(r external.ListRequest) (external.Page, error) {
	limit := 1000
	if r.MaxKeys > 0 {
		limit = min(limit, r.MaxKeys)
	}
	i, err := s.startLocked(r)
	if err != nil {
		return external.Page{}, err
	}
	page := external.Page{Objects: []external.Object{}, Prefixes: []string{}}
	last := ""
	for i < len(s.mu.keys) && strings.HasPrefix(s.mu.keys[i], r.Prefix) {
		if len(page.Objects)+len(page.Prefixes) == limit {
			page.Next = last
			return page, nil
		}
		key := s.mu.keys[i]
		if p, ok := commonPrefix(key, r); ok {
			page.Prefixes = append(page.Prefixes, p)
			last = "p" + p
			i = s.behindLocked(p)
			continue
		}
		o := s.mu.objects[key]
		page.Objects = append(page.Objects, external.Object{Key: key, Size: int64(len(o.data)), ETag: o.etag, Modified: o.modified})
		last = "k" + key
		i++
	}
	return page, nil
}

func (s *Store) startLocked(r external.ListRequest) (int, error) {
	after := r.After
	if r.Token != "" {
		after = r.Token[1:]
		switch r.Token[0] {
		case 'k':
		case 'p':
			return s.behindLocked(after), nil
		default:
			return 0, fail(objcache.Invalid, r.Prefix, "token %q", r.Token)
		}
	}
	i, found := slices.BinarySearch(s.mu.keys, max(after, r.Prefix))
	if found && after == s.mu.keys[i] && after != "" {
		i++
	}
	return i, nil
}

// behindLocked is the index of the first key behind all keys with prefix p.
func (s *Store) behindLocked(p string) int {
	i, _ := slices.BinarySearchFunc(s.mu.keys, p, func(key, p string) int {
		if strings.HasPrefix(key, p) {
			return -1
		}
		return strings.Compare(key, p)
	})
	return i
}

func commonPrefix(key string, r external.ListRequest) (string, bool) {
	if r.Delimiter == "" {
		return "", false
	}
	i := strings.Index(key[len(r.Prefix):], r.Delimiter)
	if i < 0 {
		return "", false
	}
	return key[:len(r.Prefix)+i+len(r.Delimiter)], true
}
