// Package externaltest is the contract of external.Store as tests: one suite for the fake and for real servers.
// It promises that code which passes on one store that runs the suite meets the same kinds and effects on another. It does
// not know how a store is started or which one it is; what a store lacks it reads from Capabilities.
package externaltest

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/external"
)

// Run runs the suite. Each call of open returns an empty bucket, or a fresh store on one bucket shared by the whole run:
// every test keeps to keys of its own.
func Run(t *testing.T, open func(t *testing.T) external.Store) {
	for _, c := range []struct {
		name string
		run  func(*suite)
	}{
		{"PutHeadGet", (*suite).putHeadGet},
		{"EmptyObject", (*suite).emptyObject},
		{"Overwrite", (*suite).overwrite},
		{"Metadata", (*suite).metadata},
		{"MissingKey", (*suite).missingKey},
		{"EmptyKey", (*suite).emptyKey},
		{"Delete", (*suite).deletes},
		{"Ranges", (*suite).ranges},
		{"RangesOutside", (*suite).rangesOutside},
		{"GetIfMatch", (*suite).getIfMatch},
		{"BodyIsRewound", (*suite).bodyIsRewound},
		{"ConditionalPut", (*suite).conditionalPut},
		{"Copy", (*suite).copies},
		{"CopyIfMatch", (*suite).copyIfMatch},
		{"OddKeys", (*suite).oddKeys},
		{"ListOrder", (*suite).listOrder},
		{"ListPages", (*suite).listPages},
		{"ListDelimiter", (*suite).listDelimiter},
		{"ListAfter", (*suite).listAfter},
		{"ListNothing", (*suite).listNothing},
		{"Multipart", (*suite).multipart},
		{"MultipartInvisible", (*suite).multipartInvisible},
		{"MultipartConditions", (*suite).multipartConditions},
		{"MultipartRepeated", (*suite).multipartRepeated},
		{"MultipartUnknown", (*suite).multipartUnknown},
		{"MultipartWrongPart", (*suite).multipartWrongPart},
		{"CopyPart", (*suite).copyPart},
		{"Abort", (*suite).abort},
		{"ListUploads", (*suite).listUploads},
		{"Cancelled", (*suite).cancelled},
		{"Parallel", (*suite).parallel},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.run(&suite{T: t, ctx: t.Context(), s: open(t), dir: "suite/" + c.name + "/"})
		})
	}
}

type suite struct {
	*testing.T
	ctx context.Context
	s   external.Store
	dir string // every key of this test begins with it
}

func (s *suite) key(name string) string { return s.dir + name }

// noETag is an ETag that nothing has.
const noETag = "00000000000000000000000000000000"

func body(data string) external.Body { return bytes.NewReader([]byte(data)) }

// random is bytes that differ from block to block.
func random(n int) []byte {
	b := make([]byte, n)
	src := rand.NewChaCha8([32]byte{byte(n), byte(n >> 8), byte(n >> 16)})
	if _, err := src.Read(b); err != nil {
		panic(err) // ChaCha8 never fails
	}
	return b
}

func (s *suite) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// want checks the kind of an error.
func (s *suite) want(what string, err error, kind objcache.Kind) {
	s.Helper()
	if err == nil || objcache.KindOf(err) != kind {
		s.Errorf("%s: got %v, want %v", what, err, kind)
	}
}

func (s *suite) put(key, data string, c external.Condition) string {
	s.Helper()
	etag, err := s.s.Put(s.ctx, key, body(data), nil, c)
	s.must(err)
	if etag == "" || etag[0] == '"' {
		s.Errorf("put %s: ETag %q", key, etag)
	}
	return etag
}

func (s *suite) get(key string, off, length int64) (string, external.Object) {
	s.Helper()
	r, obj, err := s.s.Get(s.ctx, key, off, length, "")
	s.must(err)
	defer r.Close()
	data, err := io.ReadAll(r)
	s.must(err)
	return string(data), obj
}

// holds checks an object's bytes.
func (s *suite) holds(key, want string) {
	s.Helper()
	if got, _ := s.get(key, 0, -1); got != want {
		s.Errorf("%s holds %.60q (%d bytes), want %.60q (%d bytes)", key, got, len(got), want, len(want))
	}
}

func (s *suite) missing(key string) {
	s.Helper()
	_, err := s.s.Head(s.ctx, key)
	s.want("head "+key, err, objcache.NotExist)
}
