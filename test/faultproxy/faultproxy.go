// Package faultproxy is an HTTP proxy in front of an S3 endpoint that goes wrong on demand: error answers, resets, cut
// bodies, lost replies, silence, latency, little bandwidth. It promises that what no rule touches passes unchanged, Host
// header included, so that signatures stay valid, and it counts every request by operation. It does not know buckets,
// credentials or what the bytes mean.
package faultproxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/objcache/objcache/server/external"
)

// Proxy is the proxy's handler and its state. It is safe for concurrent use, also while requests are under way.
type Proxy struct {
	upstream  *url.URL
	transport *http.Transport
	pace      pacer

	mu struct {
		sync.Mutex
		settings Settings
		rules    []*activeRule
		nextID   int
		counters Counters
	}
}

// Settings hold for every request.
type Settings struct {
	// Latency passes before a request is forwarded.
	Latency Duration `json:"latency"`
	// BytesPerSecond bounds the bytes of all bodies together, both directions; 0 is no bound.
	BytesPerSecond int64 `json:"bytesPerSecond"`
}

// Counters say what has passed. Requests include those that a rule spoiled.
type Counters struct {
	Requests map[external.Op]int64 `json:"requests"`
	Faults   map[external.Op]int64 `json:"faults"`
	BytesIn  int64                 `json:"bytesIn"`  // bodies sent by clients
	BytesOut int64                 `json:"bytesOut"` // bodies sent to clients
}

// New makes a proxy to an endpoint such as http://127.0.0.1:7070.
func New(upstream string) (*Proxy, error) {
	u, err := url.Parse(upstream)
	if err != nil {
		return nil, err
	}
	if u.Scheme == "" || u.Host == "" {
		return nil, errors.New("upstream " + upstream + " is no URL with a host")
	}
	p := &Proxy{upstream: u, transport: &http.Transport{
		MaxIdleConnsPerHost: 512, DisableCompression: true, ReadBufferSize: 64 << 10, WriteBufferSize: 64 << 10,
	}}
	p.ResetCounters()
	return p, nil
}

// Set replaces the settings; they hold for requests that begin from now on, the bandwidth at once.
func (p *Proxy) Set(s Settings) {
	p.mu.Lock()
	p.mu.settings = s
	p.mu.Unlock()
	p.pace.setRate(s.BytesPerSecond)
}

// Settings returns what Set set.
func (p *Proxy) Settings() Settings {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.settings
}

// ServeHTTP passes one request on, or spoils it as the rules say.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	op, key := Classify(r)
	fault, latency := p.begin(r.Method, op, key)
	body := &pacedBody{ReadCloser: r.Body, p: p, ctx: r.Context()}
	r.Body = body
	if !wait(r.Context(), latency) {
		panic(http.ErrAbortHandler)
	}
	switch {
	case fault.Reset:
		reset(w)
		return
	case fault.BlackHole:
		_, _ = io.Copy(io.Discard, r.Body) // only then the server notices that the client is gone
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	case fault.Status != 0:
		_, _ = io.Copy(io.Discard, r.Body)
		writeError(w, r, fault.Status, fault.code())
		return
	}
	resp, err := p.forward(r)
	if err != nil {
		writeError(w, r, http.StatusBadGateway, "InternalError")
		return
	}
	defer resp.Body.Close()
	if fault.LostReply {
		_, _ = io.Copy(io.Discard, resp.Body)
		reset(w)
		return
	}
	p.reply(w, r, resp, fault)
}

// hopByHop headers are of one connection only (RFC 9110, 7.6.1). Expect is answered by this server itself.
var hopByHop = []string{"Connection", "Expect", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

func (p *Proxy) forward(r *http.Request) (*http.Response, error) {
	out := r.Clone(r.Context())
	out.RequestURI = ""
	out.URL.Scheme, out.URL.Host = p.upstream.Scheme, p.upstream.Host
	for _, h := range hopByHop {
		out.Header.Del(h)
	}
	if _, ok := out.Header["User-Agent"]; !ok {
		out.Header.Set("User-Agent", "") // else the transport adds its own
	}
	if r.ContentLength == 0 {
		out.Body = http.NoBody
	}
	return p.transport.RoundTrip(out)
}

// begin counts the request and puts together what the rules that hit it say.
func (p *Proxy) begin(method string, op external.Op, key string) (Fault, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.counters.Requests[op]++
	var fault Fault
	hit := false
	for _, r := range p.mu.rules {
		if r.hits(method, op, key) {
			fault, hit = fault.and(r.Fault), true
		}
	}
	if hit {
		p.mu.counters.Faults[op]++
	}
	return fault, time.Duration(p.mu.settings.Latency + fault.Latency)
}

func (p *Proxy) count(in, out int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.counters.BytesIn += int64(in)
	p.mu.counters.BytesOut += int64(out)
}

// Server is a proxy that listens.
type Server struct {
	*Proxy
	URL  string
	http *http.Server
	done chan struct{}
}

// Start serves a proxy to upstream on addr ("127.0.0.1:0" for a free port).
func Start(addr, upstream string) (*Server, error) {
	p, err := New(upstream)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	s := &Server{Proxy: p, URL: "http://" + l.Addr().String(), http: &http.Server{Handler: p, ReadHeaderTimeout: time.Minute}, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		_ = s.http.Serve(l) // ends with ErrServerClosed
	}()
	return s, nil
}

// Close ends every connection, silent ones too.
func (s *Server) Close() error {
	err := s.http.Close()
	<-s.done
	s.transport.CloseIdleConnections()
	return err
}

// wait reports whether d passed before the context ended.
func wait(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
