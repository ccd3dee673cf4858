//go:build integration || tests3

package s3_test

import (
	"testing"

	"github.com/objcache/objcache/server/external"
	"github.com/objcache/objcache/server/external/externaltest"
	"github.com/objcache/objcache/server/external/s3"
)

func open(t *testing.T, c s3.Config) *s3.Store {
	t.Helper()
	s, err := s3.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// contract probes the store, compares with what is known of it, and runs the suite.
func contract(t *testing.T, c s3.Config, want external.Capabilities) {
	s := open(t, c)
	got, err := s.Probe(t.Context(), ".objcache/")
	if err != nil || got != want || s.Capabilities() != want {
		t.Fatalf("probe: got %+v (%v), want %+v", got, err, want)
	}
	page, err := s.List(t.Context(), external.ListRequest{})
	if err != nil || len(page.Objects) != 0 {
		t.Fatalf("the probe left %+v (%v)", page.Objects, err)
	}
	// With retries: a server that refuses a body unread resets the connection under the next request.
	retried := external.Retry(s, external.RetryConfig{})
	externaltest.Run(t, func(*testing.T) external.Store { return retried })
}
