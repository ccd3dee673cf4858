package externaltest

import (
	"fmt"
	"slices"

	"github.com/objcache/objcache/server/external"
)

func (s *suite) fill(names ...string) {
	s.Helper()
	for _, n := range names {
		s.put(s.key(n), n, external.Condition{})
	}
}

// listAll follows the pages and returns keys, prefixes and how many pages there were.
func (s *suite) listAll(r external.ListRequest) (keys, prefixes []string, pages int) {
	s.Helper()
	for {
		page, err := s.s.List(s.ctx, r)
		s.must(err)
		pages++
		for _, o := range page.Objects {
			keys = append(keys, o.Key)
		}
		prefixes = append(prefixes, page.Prefixes...)
		if page.Next == "" {
			return keys, prefixes, pages
		}
		if n := len(page.Objects) + len(page.Prefixes); r.MaxKeys > 0 && n != r.MaxKeys {
			s.Errorf("a page of %d, but not the last, and MaxKeys is %d", n, r.MaxKeys)
		}
		r.Token = page.Next
		r.After = ""
	}
}

func (s *suite) same(what string, got []string, want ...string) {
	s.Helper()
	for i := range want {
		want[i] = s.key(want[i])
	}
	if !slices.Equal(got, want) {
		s.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func (s *suite) listOrder() {
	s.fill("b", "B", "a", "a-", "a0", "é", "z", "\uffee", "\U0001f600")
	page, err := s.s.List(s.ctx, external.ListRequest{Prefix: s.dir})
	s.must(err)
	var keys []string
	for _, o := range page.Objects {
		keys = append(keys, o.Key)
		if want := int64(len(o.Key) - len(s.dir)); o.Size != want || o.ETag == "" || o.Modified.IsZero() {
			s.Errorf("listed as %+v, want %d bytes", o, want)
		}
	}
	// By bytes of UTF-8: an emoji comes behind U+FFEE, which an order by UTF-16 would turn round.
	s.same("order", keys, "B", "a", "a-", "a0", "b", "z", "é", "\uffee", "\U0001f600")
}

func (s *suite) listPages() {
	var names []string
	for i := range 23 {
		names = append(names, fmt.Sprintf("k%02d", i))
	}
	s.fill(names...)
	for _, size := range []int{1, 5, 22, 23, 24, 1000} {
		keys, _, pages := s.listAll(external.ListRequest{Prefix: s.dir, MaxKeys: size})
		s.same(fmt.Sprintf("pages of %d", size), keys, slices.Clone(names)...)
		// A store may find out only with an empty page that there is no more.
		if want := (len(names) + size - 1) / size; pages != want && pages != want+1 {
			s.Errorf("pages of %d: %d of them, want %d", size, pages, want)
		}
	}
}

func (s *suite) listDelimiter() {
	s.fill("a", "d/1", "d/2", "d/e/3", "d-", "e/1", "f", "g/h/i")
	for _, size := range []int{0, 1, 2, 3} {
		keys, prefixes, _ := s.listAll(external.ListRequest{Prefix: s.dir, Delimiter: "/", MaxKeys: size})
		s.same(fmt.Sprintf("keys in pages of %d", size), keys, "a", "d-", "f")
		s.same(fmt.Sprintf("prefixes in pages of %d", size), prefixes, "d/", "e/", "g/")
	}
	keys, prefixes, _ := s.listAll(external.ListRequest{Prefix: s.key("d/"), Delimiter: "/"})
	s.same("keys of d/", keys, "d/1", "d/2")
	s.same("prefixes of d/", prefixes, "d/e/")
	keys, prefixes, _ = s.listAll(external.ListRequest{Prefix: s.key("d"), Delimiter: "/"})
	s.same("keys that begin with d", keys, "d-")
	s.same("prefixes that begin with d", prefixes, "d/")
}

func (s *suite) listAfter() {
	s.fill("a", "b", "c", "d")
	keys, _, _ := s.listAll(external.ListRequest{Prefix: s.dir, After: s.key("b")})
	s.same("after b", keys, "c", "d")
	keys, _, _ = s.listAll(external.ListRequest{Prefix: s.dir, After: s.key("bb"), MaxKeys: 1})
	s.same("after bb", keys, "c", "d")
	keys, _, _ = s.listAll(external.ListRequest{Prefix: s.dir, After: s.key("d")})
	s.same("after d", keys)
}

func (s *suite) listNothing() {
	page, err := s.s.List(s.ctx, external.ListRequest{Prefix: s.key("nothing/"), Delimiter: "/", MaxKeys: 1})
	s.must(err)
	if len(page.Objects) != 0 || len(page.Prefixes) != 0 || page.Next != "" {
		s.Errorf("got %+v", page)
	}
}
