package externaltest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/external"
)

func (s *suite) putHeadGet() {
	before := time.Now().Add(-time.Minute)
	etag := s.put(s.key("k"), "hello", external.Condition{})
	head, err := s.s.Head(s.ctx, s.key("k"))
	s.must(err)
	if head.Key != s.key("k") || head.Size != 5 || head.ETag != etag || head.Modified.Before(before) {
		s.Errorf("head: %+v, want 5 bytes of ETag %s", head, etag)
	}
	data, got := s.get(s.key("k"), 0, -1)
	if data != "hello" || got.Size != 5 || got.ETag != etag || !got.Modified.Equal(head.Modified) {
		s.Errorf("get: %q, %+v, head says %+v", data, got, head)
	}
}

func (s *suite) emptyObject() {
	s.put(s.key("k"), "", external.Condition{})
	s.holds(s.key("k"), "")
	head, err := s.s.Head(s.ctx, s.key("k"))
	s.must(err)
	if head.Size != 0 {
		s.Errorf("size %d", head.Size)
	}
}

func (s *suite) overwrite() {
	first := s.put(s.key("k"), "first", external.Condition{})
	second := s.put(s.key("k"), "the second", external.Condition{})
	if first == second {
		s.Errorf("both have ETag %s", first)
	}
	s.holds(s.key("k"), "the second")
}

func (s *suite) metadata() {
	meta := map[string]string{"objcache-tx": "1.2.3", "mtime": "1700000000.000000001", "mode": "33188"}
	_, err := s.s.Put(s.ctx, s.key("k"), body("x"), meta, external.Condition{})
	s.must(err)
	head, err := s.s.Head(s.ctx, s.key("k"))
	s.must(err)
	_, got := s.get(s.key("k"), 0, -1)
	if !maps.Equal(head.Meta, meta) || !maps.Equal(got.Meta, meta) {
		s.Errorf("head %v, get %v, want %v", head.Meta, got.Meta, meta)
	}
	for _, bad := range []map[string]string{{"Upper": "x"}, {"name": "line\nbreak"}, {"name": "é"}, {"name": " x"}} {
		_, err = s.s.Put(s.ctx, s.key("bad"), body("x"), bad, external.Condition{})
		s.want(fmt.Sprint(bad), err, objcache.Invalid)
	}
	s.missing(s.key("bad"))
}

func (s *suite) missingKey() {
	s.missing(s.key("k"))
	_, _, err := s.s.Get(s.ctx, s.key("k"), 0, -1, "")
	s.want("get", err, objcache.NotExist)
	_, err = s.s.Copy(s.ctx, s.key("dst"), s.key("k"), "", nil, external.Condition{})
	s.want("copy", err, objcache.NotExist)
	s.missing(s.key("dst"))
}

func (s *suite) emptyKey() {
	_, err := s.s.Head(s.ctx, "")
	s.want("head", err, objcache.Invalid)
	_, err = s.s.Put(s.ctx, "", body("x"), nil, external.Condition{})
	s.want("put", err, objcache.Invalid)
	s.want("delete", s.s.Delete(s.ctx, ""), objcache.Invalid)
}

func (s *suite) deletes() {
	s.put(s.key("k"), "x", external.Condition{})
	s.must(s.s.Delete(s.ctx, s.key("k")))
	s.missing(s.key("k"))
	s.must(s.s.Delete(s.ctx, s.key("k")))
	s.must(s.s.Delete(s.ctx, s.key("never")))
}

func (s *suite) ranges() {
	data := string(random(300_000))
	s.put(s.key("k"), data, external.Condition{})
	size := int64(len(data))
	for _, r := range []struct{ off, length int64 }{{0, 1}, {0, size}, {0, size + 9}, {1, 100_000}, {size - 1, 1}, {size - 5, 100}, {7, -1}, {size - 1, -1}} {
		got, obj := s.get(s.key("k"), r.off, r.length)
		end := size
		if r.length >= 0 {
			end = min(end, r.off+r.length)
		}
		if got != data[r.off:end] || obj.Size != size {
			s.Errorf("%d+%d: %d bytes of %d, want %d of %d", r.off, r.length, len(got), obj.Size, end-r.off, size)
		}
	}
}

func (s *suite) rangesOutside() {
	s.put(s.key("k"), "hello", external.Condition{})
	for _, r := range []struct{ off, length int64 }{{5, 1}, {9, -1}, {5, -1}, {0, 0}, {2, 0}, {-1, 3}} {
		_, _, err := s.s.Get(s.ctx, s.key("k"), r.off, r.length, "")
		s.want(fmt.Sprint(r), err, objcache.Invalid)
	}
}

func (s *suite) getIfMatch() {
	old := s.put(s.key("k"), "old", external.Condition{})
	r, _, err := s.s.Get(s.ctx, s.key("k"), 0, 2, old)
	s.must(err)
	_ = r.Close()
	s.put(s.key("k"), "new", external.Condition{})
	_, _, err = s.s.Get(s.ctx, s.key("k"), 0, 2, old)
	s.want("get of the old ETag", err, objcache.Precondition)
	s.put(s.key("k"), "n", external.Condition{})
	_, _, err = s.s.Get(s.ctx, s.key("k"), 1, 2, old)
	s.want("get of the old ETag behind the end of the new object", err, objcache.Precondition)
}

func (s *suite) bodyIsRewound() {
	b := body("hello")
	if _, err := b.Seek(3, io.SeekStart); err != nil {
		s.Fatal(err)
	}
	for range 2 {
		_, err := s.s.Put(s.ctx, s.key("k"), b, nil, external.Condition{})
		s.must(err)
		s.holds(s.key("k"), "hello")
	}
}

func (s *suite) conditionalPut() {
	if !s.s.Capabilities().ConditionalPut {
		s.put(s.key("k"), "first", external.Condition{IfNone: true})
		s.holds(s.key("k"), "first")
		return
	}
	first := s.put(s.key("k"), "first", external.Condition{IfNone: true})
	refused := func(what string, c external.Condition) {
		_, err := s.s.Put(s.ctx, s.key("k"), body("refused"), nil, c)
		s.want(what, err, objcache.Precondition)
		s.holds(s.key("k"), "first")
	}
	refused("IfNone on a key that exists", external.Condition{IfNone: true})
	refused("IfMatch of nothing", external.Condition{IfMatch: noETag})
	second := s.put(s.key("k"), "second", external.Condition{IfMatch: first})
	_, err := s.s.Put(s.ctx, s.key("k"), body("refused"), nil, external.Condition{IfMatch: first})
	s.want("IfMatch of the ETag before", err, objcache.Precondition)
	s.put(s.key("k"), "third", external.Condition{IfMatch: second})
	s.holds(s.key("k"), "third")
}

func (s *suite) copies() {
	meta := map[string]string{"mode": "1"}
	_, err := s.s.Put(s.ctx, s.key("src"), body("hello"), meta, external.Condition{})
	s.must(err)
	etag, err := s.s.Copy(s.ctx, s.key("same"), s.key("src"), "", nil, external.Condition{})
	s.must(err)
	s.holds(s.key("same"), "hello")
	head, err := s.s.Head(s.ctx, s.key("same"))
	s.must(err)
	if !maps.Equal(head.Meta, meta) || head.ETag != etag {
		s.Errorf("copy has %v and ETag %s, want %v and %s", head.Meta, head.ETag, meta, etag)
	}
	other := map[string]string{"mtime": "2"}
	_, err = s.s.Copy(s.ctx, s.key("other"), s.key("src"), "", other, external.Condition{})
	s.must(err)
	s.holds(s.key("other"), "hello")
	if head, err = s.s.Head(s.ctx, s.key("other")); err != nil || !maps.Equal(head.Meta, other) {
		s.Errorf("copy has %v (%v), want %v", head.Meta, err, other)
	}
}

func (s *suite) copyIfMatch() {
	etag := s.put(s.key("src"), "hello", external.Condition{})
	_, err := s.s.Copy(s.ctx, s.key("dst"), s.key("src"), etag, nil, external.Condition{})
	s.must(err)
	s.holds(s.key("dst"), "hello")
	if !s.s.Capabilities().CopyIfMatch {
		return
	}
	_, err = s.s.Copy(s.ctx, s.key("no"), s.key("src"), noETag, nil, external.Condition{})
	s.want("copy of another ETag", err, objcache.Precondition)
	s.missing(s.key("no"))
}

// oddKeys are those every server under test can hold.
func (s *suite) oddKeys() {
	for _, name := range []string{
		"with space", "a+b", "é\u00fc\u4e2d", "per%cent%20", "quo\"te'", "semi;colon", "and&equals=", "que?ry#hash", "tab\ttab", "new\nline",
		"a:b", "back\\slash", "<xml>&amp;", "~tilde", "(par)[br]{cu}", "a/b c/d+e", "*", "comma,", "at@", "$dollar", "pi|pe", "\U0001f600",
	} {
		key := s.key("odd/" + name)
		s.put(key, name, external.Condition{})
		s.holds(key, name)
		page, err := s.s.List(s.ctx, external.ListRequest{Prefix: key})
		s.must(err)
		if len(page.Objects) != 1 || page.Objects[0].Key != key {
			s.Errorf("%q: listed as %+v", key, page.Objects)
		}
		_, err = s.s.Copy(s.ctx, key+".copy", key, "", nil, external.Condition{})
		s.must(err)
		s.holds(key+".copy", name)
		s.must(s.s.Delete(s.ctx, key))
		s.missing(key)
	}
}

func (s *suite) cancelled() {
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	_, err := s.s.Head(ctx, s.key("k"))
	s.want("head", err, objcache.Interrupted)
	_, err = s.s.Put(ctx, s.key("k"), body("x"), nil, external.Condition{})
	s.want("put", err, objcache.Interrupted)
	s.missing(s.key("k"))
}

func (s *suite) parallel() {
	var wg sync.WaitGroup
	errs := make([]error, 16)
	for i := range errs {
		wg.Go(func() {
			key, want := s.key(fmt.Sprint(i)), strings.Repeat(fmt.Sprintf("%04d", i), 10_000)
			if _, err := s.s.Put(s.ctx, key, body(want), nil, external.Condition{}); err != nil {
				errs[i] = err
				return
			}
			r, _, err := s.s.Get(s.ctx, key, 0, -1, "")
			if err != nil {
				errs[i] = err
				return
			}
			defer r.Close()
			got, err := io.ReadAll(r)
			if string(got) != want {
				err = errors.Join(err, fmt.Errorf("%s holds other bytes", key))
			}
			errs[i] = err
		})
	}
	wg.Wait()
	s.must(errors.Join(errs...))
}
