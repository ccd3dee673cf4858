package externaltest

import (
	"bytes"
	"maps"
	"slices"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/external"
)

const minPart = 5 << 20

func (s *suite) create(key string, meta map[string]string) string {
	s.Helper()
	id, err := s.s.CreateUpload(s.ctx, key, meta)
	s.must(err)
	return id
}

func (s *suite) part(key, id string, number int32, data []byte) external.Part {
	s.Helper()
	etag, err := s.s.UploadPart(s.ctx, key, id, number, bytes.NewReader(data))
	s.must(err)
	return external.Part{Number: number, ETag: etag}
}

// uploaded is an upload of one small part, ready to complete.
func (s *suite) uploaded(key, data string) (id string, parts []external.Part) {
	s.Helper()
	id = s.create(key, nil)
	return id, []external.Part{s.part(key, id, 1, []byte(data))}
}

func (s *suite) multipart() {
	key, first, last := s.key("k"), random(minPart), random(100_000)
	meta := map[string]string{"objcache-tx": "1.2.3"}
	id := s.create(key, meta)
	// Out of order, with gaps, and one part written twice.
	end := s.part(key, id, 7, last)
	s.part(key, id, 3, random(1000))
	begin := s.part(key, id, 3, first)
	etag, err := s.s.CompleteUpload(s.ctx, key, id, []external.Part{begin, end}, external.Condition{})
	s.must(err)
	s.holds(key, string(first)+string(last))
	head, err := s.s.Head(s.ctx, key)
	s.must(err)
	if head.ETag != etag || head.Size != int64(len(first)+len(last)) || !maps.Equal(head.Meta, meta) {
		s.Errorf("head: %+v, want ETag %s and %v", head, etag, meta)
	}
	across, _ := s.get(key, minPart-10, 20)
	if want := string(first[minPart-10:]) + string(last[:10]); across != want {
		s.Errorf("across the border of parts: %x, want %x", across, want)
	}
}

func (s *suite) multipartInvisible() {
	id, _ := s.uploaded(s.key("k"), "x")
	s.missing(s.key("k"))
	page, err := s.s.List(s.ctx, external.ListRequest{Prefix: s.dir})
	s.must(err)
	if len(page.Objects) != 0 {
		s.Errorf("listed: %+v", page.Objects)
	}
	s.must(s.s.AbortUpload(s.ctx, s.key("k"), id))
}

func (s *suite) multipartConditions() {
	if !s.s.Capabilities().ConditionalComplete {
		id, parts := s.uploaded(s.key("k"), "x")
		_, err := s.s.CompleteUpload(s.ctx, s.key("k"), id, parts, external.Condition{IfNone: true})
		s.must(err)
		s.holds(s.key("k"), "x")
		return
	}
	complete := func(data string, c external.Condition) (string, error) {
		id, parts := s.uploaded(s.key("k"), data)
		return s.s.CompleteUpload(s.ctx, s.key("k"), id, parts, c)
	}
	first, err := complete("first", external.Condition{IfNone: true})
	s.must(err)
	_, err = complete("refused", external.Condition{IfNone: true})
	s.want("IfNone on a key that exists", err, objcache.Precondition)
	_, err = complete("refused", external.Condition{IfMatch: noETag})
	s.want("IfMatch of nothing", err, objcache.Precondition)
	s.holds(s.key("k"), "first")
	_, err = complete("second", external.Condition{IfMatch: first})
	s.must(err)
	s.holds(s.key("k"), "second")
}

// multipartRepeated: after a lost reply the repeat succeeds or says NoUpload; the object is there in both cases.
func (s *suite) multipartRepeated() {
	id, parts := s.uploaded(s.key("k"), "x")
	etag, err := s.s.CompleteUpload(s.ctx, s.key("k"), id, parts, external.Condition{})
	s.must(err)
	again, err := s.s.CompleteUpload(s.ctx, s.key("k"), id, parts, external.Condition{})
	switch {
	case err == nil && again != etag:
		s.Errorf("repeat gave ETag %s, want %s", again, etag)
	case err != nil:
		s.want("repeat", err, objcache.NoUpload)
	}
	s.holds(s.key("k"), "x")
}

func (s *suite) multipartUnknown() {
	id, parts := s.uploaded(s.key("k"), "x")
	s.must(s.s.AbortUpload(s.ctx, s.key("k"), id))
	_, err := s.s.UploadPart(s.ctx, s.key("k"), id, 2, body("y"))
	s.want("part", err, objcache.NoUpload)
	_, err = s.s.CompleteUpload(s.ctx, s.key("k"), id, parts, external.Condition{})
	s.want("complete", err, objcache.NoUpload)
	s.missing(s.key("k"))
}

func (s *suite) multipartWrongPart() {
	id, parts := s.uploaded(s.key("k"), "x")
	for what, list := range map[string][]external.Part{
		"another ETag": {{Number: 1, ETag: noETag}},
		"no such part": {parts[0], {Number: 2, ETag: parts[0].ETag}},
	} {
		_, err := s.s.CompleteUpload(s.ctx, s.key("k"), id, list, external.Condition{})
		s.want(what, err, objcache.Invalid)
	}
	s.missing(s.key("k"))
	s.must(s.s.AbortUpload(s.ctx, s.key("k"), id))
}

func (s *suite) copyPart() {
	if !s.s.Capabilities().CopyPart {
		s.Log("the store has no CopyPart: nothing to promise")
		return
	}
	data := random(2*minPart + 1)
	etag := s.put(s.key("src"), string(data), external.Condition{})
	id := s.create(s.key("k"), nil)
	tag, err := s.s.CopyPart(s.ctx, s.key("k"), id, 1, s.key("src"), 10, minPart, etag)
	s.must(err)
	parts := []external.Part{{Number: 1, ETag: tag}, s.part(s.key("k"), id, 2, []byte("tail"))}
	if s.s.Capabilities().CopyIfMatch {
		_, err = s.s.CopyPart(s.ctx, s.key("k"), id, 3, s.key("src"), 0, minPart, noETag)
		s.want("copy part of another ETag", err, objcache.Precondition)
	}
	_, err = s.s.CopyPart(s.ctx, s.key("k"), id, 3, s.key("never"), 0, minPart, "")
	s.want("copy part of a missing key", err, objcache.NotExist)
	_, err = s.s.CompleteUpload(s.ctx, s.key("k"), id, parts, external.Condition{})
	s.must(err)
	s.holds(s.key("k"), string(data[10:10+minPart])+"tail")
}

func (s *suite) abort() {
	id, _ := s.uploaded(s.key("k"), "x")
	for range 2 {
		s.must(s.s.AbortUpload(s.ctx, s.key("k"), id))
	}
	ups, err := s.s.ListUploads(s.ctx, s.key("k"))
	s.must(err)
	if len(ups) != 0 {
		s.Errorf("left: %+v", ups)
	}
}

func (s *suite) listUploads() {
	want := []string{s.create(s.key("k"), nil), s.create(s.key("k"), nil)}
	other := s.create(s.key("k2"), nil)
	ups, err := s.s.ListUploads(s.ctx, s.key("k"))
	s.must(err)
	var got []string
	for _, u := range ups {
		got = append(got, u.ID)
		if u.Key != s.key("k") || u.Initiated.IsZero() {
			s.Errorf("listed as %+v", u)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		s.Errorf("got %q, want %q", got, want)
	}
	for _, id := range want {
		s.must(s.s.AbortUpload(s.ctx, s.key("k"), id))
	}
	s.must(s.s.AbortUpload(s.ctx, s.key("k2"), other))
}
