package s3

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/external"
)

var noCondition = external.Condition{}

func TestOpen_RefusesWhatCannotWork(t *testing.T) {
	for name, c := range map[string]Config{
		"no bucket":         {},
		"half a key":        {Bucket: "b", AccessKey: "k"},
		"token without key": {Bucket: "b", SessionToken: "t"},
		"endpoint":          {Bucket: "b", Endpoint: "localhost:9000"},
		"CA":                {Bucket: "b", CABundle: []byte("no PEM")},
	} {
		if _, err := Open(t.Context(), c); objcache.KindOf(err) != objcache.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// isolate takes the machine's own AWS settings out of the test.
func isolate(t *testing.T) {
	t.Setenv("AWS_CONFIG_FILE", t.TempDir()+"/config")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", t.TempDir()+"/credentials")
	for _, v := range []string{"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_CA_BUNDLE", "AWS_SESSION_TOKEN"} {
		t.Setenv(v, "")
	}
}

func TestOpen_KeysComeFromTheEnvironment(t *testing.T) {
	isolate(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "fromenv")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	var auth, path string
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		auth, path = r.Header.Get("Authorization"), r.URL.Path
	}))
	t.Cleanup(srv.Close)
	s, err := Open(t.Context(), Config{Bucket: "b", Endpoint: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(auth, "Credential=fromenv/") || !strings.Contains(auth, "/us-east-1/s3/") || path != "/b/k" {
		t.Errorf("authorization %q, path %q", auth, path)
	}
}

func TestOpen_NoCredentialsIsPermission(t *testing.T) {
	isolate(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	s, err := Open(t.Context(), Config{Bucket: "b", Endpoint: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Head(t.Context(), "k"); objcache.KindOf(err) != objcache.Permission {
		t.Errorf("no credentials anywhere: %v", err)
	}
}

func TestOpen_TrustsTheCABundle(t *testing.T) {
	srv := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(srv.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	for _, c := range []struct {
		ca   []byte
		want objcache.Kind
	}{{ca, objcache.Unknown}, {nil, objcache.IO}} {
		s, err := Open(t.Context(), Config{Bucket: "b", Endpoint: srv.URL, AccessKey: "k", SecretKey: "s", CABundle: c.ca})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Delete(t.Context(), "k"); objcache.KindOf(err) != c.want {
			t.Errorf("bundle of %d bytes: %v", len(c.ca), err)
		}
	}
}
