package server

import (
	"net/http"
	"net/http/pprof"
)

// HandleProfiles puts the Go profiler's pages under /debug/pprof/. They tell much about a process and a CPU profile costs it
// time, so nobody serves them unless asked to.
func HandleProfiles(mux *http.ServeMux) {
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
}
