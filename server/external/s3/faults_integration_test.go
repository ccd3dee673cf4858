//go:build integration

package s3_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/external"
	"github.com/objcache/objcache/server/external/externaltest"
	"github.com/objcache/objcache/server/external/s3"
	"github.com/objcache/objcache/test/faultproxy"
	"github.com/objcache/objcache/test/s3server"
)

// behind opens the bucket of a real server through a fault proxy, with retries.
func behind(t *testing.T, responseTimeout time.Duration, r external.RetryConfig) (external.Store, *faultproxy.Server) {
	t.Helper()
	srv := s3server.Versitygw(t, "faults")
	proxy, err := faultproxy.Start("127.0.0.1:0", srv.S3.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
	})
	c := srv.S3
	c.Endpoint, c.ResponseTimeout = proxy.URL, responseTimeout
	return external.Retry(open(t, c), r), proxy
}

var quick = external.RetryConfig{Base: time.Millisecond, Max: 20 * time.Millisecond}

func inject(t *testing.T, p *faultproxy.Server, r faultproxy.Rule) {
	t.Helper()
	p.Clear()
	p.ResetCounters()
	if _, err := p.Add(r); err != nil {
		t.Fatal(err)
	}
}

func put(t *testing.T, s external.Store, key, data string, c external.Condition) error {
	t.Helper()
	_, err := s.Put(t.Context(), key, strings.NewReader(data), nil, c)
	return err
}

func readAll(t *testing.T, s external.Store, key string) (string, error) {
	t.Helper()
	r, _, err := s.Get(t.Context(), key, 0, -1, "")
	if err != nil {
		return "", err
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	return string(b), err
}

func TestFaults_503AndResetPassByRetrying(t *testing.T) {
	s, proxy := behind(t, 0, quick)
	big := strings.Repeat("0123456789abcdef", 64<<10)
	for name, f := range map[string]faultproxy.Fault{"503": {Status: 503}, "500": {Status: 500}, "reset": {Reset: true}} {
		inject(t, proxy, faultproxy.Rule{Op: external.OpPut, Times: 3, Fault: f})
		if err := put(t, s, "k", big, external.Condition{}); err != nil || proxy.Counters().Requests[external.OpPut] != 4 {
			t.Errorf("%s: put: %v, %+v", name, err, proxy.Counters())
		}
		inject(t, proxy, faultproxy.Rule{Op: external.OpGet, Times: 3, Fault: f})
		if got, err := readAll(t, s, "k"); err != nil || got != big {
			t.Errorf("%s: get: %d bytes, %v", name, len(got), err)
		}
		inject(t, proxy, faultproxy.Rule{Op: external.OpList, Times: 3, Fault: f})
		if page, err := s.List(t.Context(), external.ListRequest{}); err != nil || len(page.Objects) != 1 {
			t.Errorf("%s: list: %+v, %v", name, page, err)
		}
		inject(t, proxy, faultproxy.Rule{Op: external.OpHead, Times: 3, Fault: f})
		if _, err := s.Head(t.Context(), "k"); err != nil {
			t.Errorf("%s: head: %v", name, err)
		}
	}
}

// The bug that cost users of other systems their data: a 503 must never read as "no such file".
func TestFaults_LastingTroubleIsUnavailableAndNeverNotExist(t *testing.T) {
	s, proxy := behind(t, 0, external.RetryConfig{Base: time.Millisecond, Max: 5 * time.Millisecond, Total: 100 * time.Millisecond, Mutating: 100 * time.Millisecond})
	if err := put(t, s, "k", "x", external.Condition{}); err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]faultproxy.Fault{"503": {Status: 503}, "reset": {Reset: true}, "black hole": {BlackHole: true}} {
		inject(t, proxy, faultproxy.Rule{Fault: f})
		_, headErr := s.Head(t.Context(), "k")
		_, getErr := readAll(t, s, "k")
		_, listErr := s.List(t.Context(), external.ListRequest{})
		for op, err := range map[string]error{"head": headErr, "get": getErr, "list": listErr, "put": put(t, s, "k", "y", external.Condition{})} {
			if objcache.KindOf(err) != objcache.Unavailable {
				t.Errorf("%s: %s: %v", name, op, err)
			}
		}
	}
	proxy.Clear()
	if got, err := readAll(t, s, "k"); err != nil || got != "x" {
		t.Errorf("afterwards: %q, %v", got, err)
	}
}

func TestFaults_SilentServerIsLeftAndAskedAgain(t *testing.T) {
	s, proxy := behind(t, 100*time.Millisecond, quick)
	inject(t, proxy, faultproxy.Rule{Times: 1, Op: external.OpPut, Fault: faultproxy.Fault{BlackHole: true}})
	if err := put(t, s, "k", "x", external.Condition{}); err != nil || proxy.Counters().Requests[external.OpPut] != 2 {
		t.Errorf("got %v, %+v", err, proxy.Counters())
	}
}

func TestFaults_CutBodyIsNoticed(t *testing.T) {
	s, proxy := behind(t, 0, quick)
	if err := put(t, s, "k", "0123456789", external.Condition{}); err != nil {
		t.Fatal(err)
	}
	none, some := int64(0), int64(4)
	for name, c := range map[string]struct {
		fault faultproxy.Fault
		want  string
		ok    bool
	}{
		"before the first byte": {faultproxy.Fault{Truncate: &none}, "0123456789", true},
		"behind it":             {faultproxy.Fault{Truncate: &some}, "0123", false},
		"too long a length":     {faultproxy.Fault{LengthDelta: 5}, "0123456789", false},
	} {
		inject(t, proxy, faultproxy.Rule{Op: external.OpGet, Times: 1, Fault: c.fault})
		got, err := readAll(t, s, "k")
		if got != c.want || c.ok != (err == nil) || !c.ok && (!errors.Is(err, io.ErrUnexpectedEOF) || objcache.KindOf(err) != objcache.Unavailable) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	inject(t, proxy, faultproxy.Rule{Op: external.OpGet, Times: 1, Fault: faultproxy.Fault{LengthDelta: -3}})
	if _, _, err := s.Get(t.Context(), "k", 2, 6, ""); objcache.KindOf(err) != objcache.IO {
		t.Errorf("length and Content-Range differ: %v", err)
	}
}

func TestFaults_LostReplyOfAConditionalPutSurfaces(t *testing.T) {
	s, proxy := behind(t, 0, quick)
	inject(t, proxy, faultproxy.Rule{Op: external.OpPut, Times: 1, Fault: faultproxy.Fault{LostReply: true}})
	if err := put(t, s, "k", "x", external.Condition{IfNone: true}); objcache.KindOf(err) != objcache.Precondition {
		t.Errorf("got %v", err)
	}
	if got, err := readAll(t, s, "k"); err != nil || got != "x" {
		t.Errorf("the put took effect, but %q, %v", got, err)
	}
}

func TestFaults_LostReplyOfCompleteSurfaces(t *testing.T) {
	s, proxy := behind(t, 0, quick)
	id, err := s.CreateUpload(t.Context(), "k", nil)
	if err != nil {
		t.Fatal(err)
	}
	etag, err := s.UploadPart(t.Context(), "k", id, 1, strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	inject(t, proxy, faultproxy.Rule{Op: external.OpCompleteUpload, Times: 1, Fault: faultproxy.Fault{LostReply: true}})
	_, err = s.CompleteUpload(t.Context(), "k", id, []external.Part{{Number: 1, ETag: etag}}, external.Condition{})
	if err != nil && objcache.KindOf(err) != objcache.NoUpload {
		t.Errorf("got %v", err)
	}
	if got, err := readAll(t, s, "k"); err != nil || got != "x" || proxy.Counters().Requests[external.OpCompleteUpload] != 2 {
		t.Errorf("%q, %v, %+v", got, err, proxy.Counters())
	}
}

func TestFaults_ReadOnlyBucketHasNoCapabilities(t *testing.T) {
	srv := s3server.Versitygw(t, "faults")
	proxy, err := faultproxy.Start("127.0.0.1:0", srv.S3.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	for _, method := range []string{"PUT", "POST", "DELETE"} {
		if _, err := proxy.Add(faultproxy.Rule{Method: method, Fault: faultproxy.Fault{Status: 403}}); err != nil {
			t.Fatal(err)
		}
	}
	c := srv.S3
	c.Endpoint = proxy.URL
	s := open(t, c)
	if caps, err := s.Probe(t.Context(), ".objcache/"); err != nil || caps != (external.Capabilities{}) {
		t.Errorf("got %+v, %v", caps, err)
	}
}

// The whole contract holds through a proxy that spoils every fifth request, whatever it is, before its effect.
func TestContract_ThroughFaults(t *testing.T) {
	srv := s3server.Versitygw(t, "faults")
	proxy, err := faultproxy.Start("127.0.0.1:0", srv.S3.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	for i, f := range []faultproxy.Fault{{Status: 503}, {Reset: true}, {Status: 500}} {
		for n := range 200 {
			if _, err := proxy.Add(faultproxy.Rule{Skip: 15*n + 5*i, Times: 1, Fault: f}); err != nil {
				t.Fatal(err)
			}
		}
	}
	c := srv.S3
	c.Endpoint = proxy.URL
	base := open(t, c)
	if _, err := base.Probe(t.Context(), ".objcache/"); err != nil {
		t.Fatal(err)
	}
	s := external.Retry(base, quick)
	externaltest.Run(t, func(*testing.T) external.Store { return s })
	if n := proxy.Counters(); n.Faults[external.OpPut] < 10 || n.Faults[external.OpGet] < 10 {
		t.Errorf("too few faults to mean anything: %+v", n)
	}
}

var _ external.Store = (*s3.Store)(nil)
