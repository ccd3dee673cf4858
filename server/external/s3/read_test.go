package s3

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/objcache/objcache"
)

func TestGet_ChecksWhatTheStoreAnnounces(t *testing.T) {
	for _, c := range []struct {
		name           string
		off, length    int64
		status         int
		contentRange   string
		body           string
		want           string
		wantErr        objcache.Kind
		wantTotalBytes int64
	}{
		{name: "whole", off: 0, length: -1, status: 200, body: "abcdef", want: "abcdef", wantTotalBytes: 6},
		{name: "range", off: 2, length: 3, status: 206, contentRange: "bytes 2-4/6", body: "cde", want: "cde", wantTotalBytes: 6},
		{name: "range over the end", off: 2, length: 30, status: 206, contentRange: "bytes 2-5/6", body: "cdef", want: "cdef", wantTotalBytes: 6},
		{name: "to the end", off: 2, length: -1, status: 206, contentRange: "bytes 2-5/6", body: "cdef", want: "cdef", wantTotalBytes: 6},
		{name: "whole object instead of a range that covers it", off: 0, length: 9, status: 200, body: "abcdef", want: "abcdef", wantTotalBytes: 6},
		{name: "whole object instead of a range", off: 2, length: 3, status: 200, body: "abcdef", wantErr: objcache.IO},
		{name: "another range", off: 2, length: 3, status: 206, contentRange: "bytes 1-3/6", body: "bcd", wantErr: objcache.IO},
		{name: "a shorter range", off: 2, length: 3, status: 206, contentRange: "bytes 2-3/6", body: "cd", wantErr: objcache.IO},
		{name: "length and range differ", off: 2, length: 3, status: 206, contentRange: "bytes 2-4/6", body: "cd", wantErr: objcache.IO},
		{name: "nonsense", off: 2, length: 3, status: 206, contentRange: "bytes 4-2/6", body: "cd", wantErr: objcache.IO},
		{name: "no total", off: 2, length: 3, status: 206, contentRange: "bytes 2-4/*", body: "cde", wantErr: objcache.IO},
		{name: "behind the end", off: 9, length: 3, status: 416, body: "<Error><Code>InvalidRange</Code></Error>", wantErr: objcache.Invalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				if c.contentRange != "" {
					w.Header().Set("Content-Range", c.contentRange)
				}
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			})
			r, obj, err := s.Get(t.Context(), "k", c.off, c.length, "")
			if c.wantErr != objcache.Unknown {
				if objcache.KindOf(err) != c.wantErr {
					t.Fatalf("got %v, want %v", err, c.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			got, err := io.ReadAll(r)
			if err != nil || string(got) != c.want || obj.Size != c.wantTotalBytes {
				t.Errorf("got %q of %d (%v), want %q of %d", got, obj.Size, err, c.want, c.wantTotalBytes)
			}
		})
	}
}

func TestGet_ShortBodyIsUnexpectedEOF(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "10")
		_, _ = io.WriteString(w, "abc")
	})
	r, _, err := s.Get(t.Context(), "k", 0, -1, "")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got, err := io.ReadAll(r)
	if string(got) != "abc" || !errors.Is(err, io.ErrUnexpectedEOF) || objcache.KindOf(err) != objcache.Unavailable {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestGet_SilentStoreIsGivenUp(t *testing.T) {
	release := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "10")
		_, _ = io.WriteString(w, "abc")
		_ = http.NewResponseController(w).Flush()
		<-release
	}))
	t.Cleanup(srv.Close)
	t.Cleanup(func() { close(release) })
	s, err := Open(t.Context(), Config{Bucket: "b", Endpoint: srv.URL, AccessKey: "k", SecretKey: "s", ResponseTimeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	r, _, err := s.Get(t.Context(), "k", 0, -1, "")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got, err := io.ReadAll(r)
	if string(got) != "abc" || objcache.KindOf(err) != objcache.Unavailable || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestGet_AnotherETagThanAskedForIsRefused(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("ETag", `"new"`)
		_, _ = io.WriteString(w, "abc")
	})
	if _, _, err := s.Get(t.Context(), "k", 0, -1, "old"); objcache.KindOf(err) != objcache.IO {
		t.Errorf("got %v", err)
	}
}

func TestPut_OverHTTPSendsNoHashAndNoTrailer(t *testing.T) {
	var sha, trailer, sent string
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		sha, trailer, sent = r.Header.Get("X-Amz-Content-Sha256"), r.Header.Get("X-Amz-Trailer"), string(b)
	})
	body := strings.NewReader("bytes")
	if _, err := io.ReadAll(body); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), "k", body, nil, noCondition); err != nil {
		t.Fatal(err)
	}
	if sha != "UNSIGNED-PAYLOAD" || trailer != "" || sent != "bytes" {
		t.Errorf("sha %q, trailer %q, body %q", sha, trailer, sent)
	}
}

func TestCopySource_EscapesAllButSlashes(t *testing.T) {
	s := &Store{bucket: "b"}
	if got := *s.copySource("a b/c+d/é?%/\x00"); got != "b/a%20b/c%2Bd/%C3%A9%3F%25/%00" {
		t.Errorf("got %s", got)
	}
}
