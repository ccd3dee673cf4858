package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/external"
)

// serve opens a store on a server that gives every request the same answer.
func serve(t *testing.T, h http.HandlerFunc) *Store {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	s, err := Open(t.Context(), Config{Bucket: "b", Endpoint: srv.URL, AccessKey: "k", SecretKey: "s"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func answer(status int, code string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(status)
		if r.Method != http.MethodHead && code != "" {
			fmt.Fprintf(w, "<?xml version=\"1.0\"?><Error><Code>%s</Code><Message>m</Message></Error>", code)
		}
	}
}

func reset(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) }

func TestKind_EveryS3ErrorHasOne(t *testing.T) {
	for _, c := range []struct {
		status int
		code   string
		want   objcache.Kind
	}{
		{404, "NoSuchKey", objcache.NotExist},
		{404, "NoSuchUpload", objcache.NoUpload},
		{404, "NoSuchBucket", objcache.IO},
		{403, "AccessDenied", objcache.Permission},
		{403, "InvalidAccessKeyId", objcache.Permission},
		{403, "SignatureDoesNotMatch", objcache.Permission},
		{400, "ExpiredToken", objcache.Permission},
		{403, "RequestTimeTooSkewed", objcache.Unavailable},
		{403, "QuotaExceeded", objcache.NoSpace},
		{412, "PreconditionFailed", objcache.Precondition},
		{409, "ConditionalRequestConflict", objcache.Unavailable},
		{409, "OperationAborted", objcache.Unavailable},
		{400, "RequestTimeout", objcache.Unavailable},
		{400, "IncompleteBody", objcache.Unavailable},
		{400, "InvalidArgument", objcache.Invalid},
		{400, "KeyTooLongError", objcache.NameTooLong},
		{413, "", objcache.TooLarge},
		{429, "", objcache.Unavailable},
		{500, "InternalError", objcache.Unavailable},
		{501, "NotImplemented", objcache.NotSupported},
		{502, "", objcache.Unavailable},
		{503, "SlowDown", objcache.Unavailable},
		{503, "", objcache.Unavailable},
		{504, "", objcache.Unavailable},
		{507, "XMinioStorageFull", objcache.NoSpace},
		{301, "PermanentRedirect", objcache.IO},
	} {
		t.Run(fmt.Sprintf("%d %s", c.status, c.code), func(t *testing.T) {
			s := serve(t, answer(c.status, c.code))
			_, err := s.Put(t.Context(), "k", strings.NewReader("x"), nil, external.Condition{})
			if got := objcache.KindOf(err); got != c.want {
				t.Errorf("put: got %v (%v), want %v", got, err, c.want)
			}
			_, err = s.List(t.Context(), external.ListRequest{})
			if got := objcache.KindOf(err); got != c.want {
				t.Errorf("list: got %v (%v), want %v", got, err, c.want)
			}
		})
	}
}

// A HEAD has no body: the status is all there is.
func TestKind_HeadKnowsOnlyTheStatus(t *testing.T) {
	for status, want := range map[int]objcache.Kind{
		404: objcache.NotExist, 403: objcache.Permission, 412: objcache.Precondition, 500: objcache.Unavailable, 503: objcache.Unavailable,
	} {
		_, err := serve(t, answer(status, "")).Head(t.Context(), "k")
		if got := objcache.KindOf(err); got != want {
			t.Errorf("%d: got %v (%v), want %v", status, got, err, want)
		}
	}
}

func TestKind_ErrorInTheBodyOf200(t *testing.T) {
	s := serve(t, answer(200, "InternalError"))
	_, err := s.CompleteUpload(t.Context(), "k", "id", []external.Part{{Number: 1, ETag: "e"}}, external.Condition{})
	if objcache.KindOf(err) != objcache.Unavailable {
		t.Errorf("complete: %v", err)
	}
	if _, err = s.Copy(t.Context(), "k", "src", "", nil, external.Condition{}); objcache.KindOf(err) != objcache.Unavailable {
		t.Errorf("copy: %v", err)
	}
	s = serve(t, answer(200, "NoSuchUpload"))
	_, err = s.CompleteUpload(t.Context(), "k", "id", []external.Part{{Number: 1, ETag: "e"}}, external.Condition{})
	if objcache.KindOf(err) != objcache.NoUpload {
		t.Errorf("complete of an unknown upload: %v", err)
	}
}

func TestKind_CutAnswersAreUnavailable(t *testing.T) {
	cut := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(w, `<?xml version="1.0"?><ListBucketResult><Name>b</Name><Contents><Key>a`)
		panic(http.ErrAbortHandler)
	}
	for name, h := range map[string]http.HandlerFunc{"reset": reset, "cut": cut} {
		_, err := serve(t, h).List(t.Context(), external.ListRequest{})
		if objcache.KindOf(err) != objcache.Unavailable {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestKind_NoServerIsUnavailable(t *testing.T) {
	s := serve(t, reset)
	gone := httptest.NewServer(http.HandlerFunc(reset))
	gone.Close()
	s, err := Open(t.Context(), Config{Bucket: s.bucket, Endpoint: gone.URL, AccessKey: "k", SecretKey: "s"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Head(t.Context(), "k"); objcache.KindOf(err) != objcache.Unavailable {
		t.Errorf("got %v", err)
	}
}

func TestKind_CancelIsInterrupted(t *testing.T) {
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Head(ctx, "k"); objcache.KindOf(err) != objcache.Interrupted {
		t.Errorf("got %v", err)
	}
}

func TestKind_EmptyKeyNeverReachesTheBucket(t *testing.T) {
	asked := false
	s := serve(t, func(http.ResponseWriter, *http.Request) { asked = true })
	_, headErr := s.Head(t.Context(), "")
	_, _, getErr := s.Get(t.Context(), "", 0, -1, "")
	_, createErr := s.CreateUpload(t.Context(), "", nil)
	for _, err := range []error{headErr, getErr, createErr, s.Delete(t.Context(), "")} {
		if objcache.KindOf(err) != objcache.Invalid {
			t.Errorf("got %v", err)
		}
	}
	if asked {
		t.Error("a request was sent")
	}
}

func TestKind_CredentialsOutOfReachMayComeBack(t *testing.T) {
	for _, c := range []struct {
		err  error
		want objcache.Kind
	}{
		{fmt.Errorf("sts: %w", io.ErrUnexpectedEOF), objcache.Unavailable},
		{fmt.Errorf("sts: %w", context.DeadlineExceeded), objcache.Unavailable},
		{errors.New("no credentials in the chain"), objcache.Permission},
	} {
		p := classifyCredentials(aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{}, c.err
		}))
		if _, err := p.Retrieve(t.Context()); objcache.KindOf(err) != c.want {
			t.Errorf("%v: got %v, want %v", c.err, err, c.want)
		}
	}
}

func TestKind_WhatNobodyKnowsIsIO(t *testing.T) {
	if k := kindOf(errors.New("of no kind at all")); k != objcache.IO {
		t.Errorf("got %v", k)
	}
}

func TestKind_TableUsesKnownKinds(t *testing.T) {
	for code, k := range kindOfCode {
		if k == objcache.Unknown || !slices.Contains(objcache.Kinds(), k) {
			t.Errorf("%s: %v", code, k)
		}
	}
}
