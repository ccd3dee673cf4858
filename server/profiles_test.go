package server

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestHandleProfiles_ServesTheHeapAndTheIndex(t *testing.T) {
	mux := http.NewServeMux()
	HandleProfiles(mux)
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/symbol"} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != http.StatusOK {
			t.Errorf("GET %s: %d", path, w.Code)
		}
	}
}
