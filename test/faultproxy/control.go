package faultproxy

import (
	"encoding/json"
	"maps"
	"net/http"

	"github.com/objcache/objcache/server/external"
)

// Counters returns a copy.
func (p *Proxy) Counters() Counters {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.mu.counters
	c.Requests, c.Faults = maps.Clone(c.Requests), maps.Clone(c.Faults)
	return c
}

// ResetCounters begins to count from zero.
func (p *Proxy) ResetCounters() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.counters = Counters{Requests: map[external.Op]int64{}, Faults: map[external.Op]int64{}}
}

// Control is the proxy's remote control, to be served on an address of its own:
//
//	GET    /rules       the rules in force        GET    /counters   what has passed
//	POST   /rules       add one, answers its id   DELETE /counters   count from zero
//	DELETE /rules       remove all                GET    /settings
//	DELETE /rules/{id}  remove one                PUT    /settings
func (p *Proxy) Control() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /rules", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, p.Rules()) })
	mux.HandleFunc("POST /rules", p.postRule)
	mux.HandleFunc("DELETE /rules", func(http.ResponseWriter, *http.Request) { p.Clear() })
	mux.HandleFunc("DELETE /rules/{id}", func(w http.ResponseWriter, r *http.Request) {
		if !p.Remove(r.PathValue("id")) {
			http.Error(w, "no such rule", http.StatusNotFound)
		}
	})
	mux.HandleFunc("GET /counters", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, p.Counters()) })
	mux.HandleFunc("DELETE /counters", func(http.ResponseWriter, *http.Request) { p.ResetCounters() })
	mux.HandleFunc("GET /settings", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, p.Settings()) })
	mux.HandleFunc("PUT /settings", p.putSettings)
	return mux
}

func (p *Proxy) postRule(w http.ResponseWriter, r *http.Request) {
	var rule Rule
	if !readJSON(w, r, &rule) {
		return
	}
	id, err := p.Add(rule)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	writeJSON(w, map[string]string{"id": id})
}

func (p *Proxy) putSettings(w http.ResponseWriter, r *http.Request) {
	var s Settings
	if readJSON(w, r, &s) {
		p.Set(s)
	}
}

func readJSON(w http.ResponseWriter, r *http.Request, v any) bool {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return false
	}
	return true
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client may be gone
}
