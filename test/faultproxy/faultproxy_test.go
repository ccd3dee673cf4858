package faultproxy_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/objcache/objcache/server/external"
	"github.com/objcache/objcache/test/faultproxy"
)

const content = "0123456789"

// start is a proxy before a server that answers every request with content; effects counts what arrived there.
func start(t *testing.T) (p *faultproxy.Server, effects *atomic.Int64) {
	t.Helper()
	effects = new(atomic.Int64)
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		effects.Add(1)
		w.Header().Set("ETag", `"e"`)
		w.Header().Set("X-Seen-Host", r.Host)
		w.Header().Set("X-Seen-Path", r.URL.EscapedPath())
		_, _ = io.WriteString(w, content)
	}))
	p, err := faultproxy.Start("127.0.0.1:0", up.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		up.Close()
	})
	return p, effects
}

func add(t *testing.T, p *faultproxy.Server, r faultproxy.Rule) string {
	t.Helper()
	id, err := p.Add(r)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

type result struct {
	status int
	header http.Header
	body   string
	err    error // of the request or of its body
}

// ask sends one request over a connection of its own, which is never tried again behind our back.
func ask(t *testing.T, method, url, body string) result {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return result{err: err}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return result{resp.StatusCode, resp.Header, string(b), err}
}

func TestProxy_PassesUntouchedWithTheClientsHost(t *testing.T) {
	p, _ := start(t)
	got := ask(t, http.MethodPut, p.URL+"/b/a%2Fb//c%20d", "hello")
	host := strings.TrimPrefix(p.URL, "http://")
	if got.err != nil || got.body != content || got.header.Get("ETag") != `"e"` || got.header.Get("X-Seen-Host") != host || got.header.Get("X-Seen-Path") != "/b/a%2Fb//c%20d" {
		t.Errorf("got %+v", got)
	}
	c := p.Counters()
	if c.Requests[external.OpPut] != 1 || len(c.Faults) != 0 || c.BytesIn != 5 || c.BytesOut != 10 {
		t.Errorf("counters: %+v", c)
	}
}

func TestRule_SpoilsARequest(t *testing.T) {
	three := int64(3)
	for _, c := range []struct {
		name    string
		fault   faultproxy.Fault
		status  int
		body    string
		err     error
		effects int64
	}{
		{name: "status", fault: faultproxy.Fault{Status: 503}, status: 503, body: "<Code>SlowDown</Code>"},
		{name: "status and code", fault: faultproxy.Fault{Status: 409, Code: "OperationAborted"}, status: 409, body: "<Code>OperationAborted</Code>"},
		{name: "reset", fault: faultproxy.Fault{Reset: true}, err: syscall.ECONNRESET},
		{name: "lost reply", fault: faultproxy.Fault{LostReply: true}, err: syscall.ECONNRESET, effects: 1},
		{name: "cut", fault: faultproxy.Fault{Truncate: &three}, status: 200, body: "012", err: io.ErrUnexpectedEOF, effects: 1},
		{name: "too long a length", fault: faultproxy.Fault{LengthDelta: 5}, status: 200, body: content, err: io.ErrUnexpectedEOF, effects: 1},
		{name: "too short a length", fault: faultproxy.Fault{LengthDelta: -4}, status: 200, body: "012345", effects: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, effects := start(t)
			add(t, p, faultproxy.Rule{Op: external.OpGet, Times: 1, Fault: c.fault})
			got := ask(t, http.MethodGet, p.URL+"/b/k", "")
			// A reset may reach the client as an end of file, if it was about to read.
			reset := errors.Is(c.err, syscall.ECONNRESET) && errors.Is(got.err, io.EOF)
			if !errors.Is(got.err, c.err) && !reset || got.status != c.status || !strings.Contains(got.body, c.body) || effects.Load() != c.effects {
				t.Errorf("got %+v and %d effects, want %+v", got, effects.Load(), c)
			}
			if got = ask(t, http.MethodGet, p.URL+"/b/k", ""); got.err != nil || got.body != content {
				t.Errorf("the next one: %+v", got)
			}
			if n := p.Counters(); n.Faults[external.OpGet] != 1 || n.Requests[external.OpGet] != 2 {
				t.Errorf("counters: %+v", n)
			}
		})
	}
}

func TestRule_HitsWhatItNames(t *testing.T) {
	for _, c := range []struct {
		rule faultproxy.Rule
		want string // which of GET a, GET b, PUT a, GET a, GET a are spoiled
	}{
		{faultproxy.Rule{}, "xxxxx"},
		{faultproxy.Rule{Op: external.OpPut}, "..x.."},
		{faultproxy.Rule{Method: "GET"}, "xx.xx"},
		{faultproxy.Rule{Key: "^a$"}, "x.xxx"},
		{faultproxy.Rule{Key: "^a$", Skip: 1}, "..xxx"},
		{faultproxy.Rule{Key: "^a$", Skip: 1, Times: 2}, "..xx."},
		{faultproxy.Rule{Op: external.OpGet, Key: "a", Times: 1}, "x...."},
	} {
		p, _ := start(t)
		c.rule.Status = 500
		add(t, p, c.rule)
		got := ""
		for _, r := range []string{"GET a", "GET b", "PUT a", "GET a", "GET a"} {
			method, key, _ := strings.Cut(r, " ")
			if ask(t, method, p.URL+"/bucket/"+key, "").status == 500 {
				got += "x"
			} else {
				got += "."
			}
		}
		if got != c.want {
			t.Errorf("%+v: got %s, want %s", c.rule, got, c.want)
		}
	}
}

func TestRule_BadOnesAreRefused(t *testing.T) {
	p, _ := start(t)
	for _, r := range []faultproxy.Rule{{Key: "("}, {Op: "Post"}, {Fault: faultproxy.Fault{Status: 42}}} {
		if _, err := p.Add(r); err == nil {
			t.Errorf("%+v: accepted", r)
		}
	}
	if len(p.Rules()) != 0 {
		t.Errorf("rules: %+v", p.Rules())
	}
}

func TestBlackHole_NeverAnswersUntilTheProxyCloses(t *testing.T) {
	p, effects := start(t)
	add(t, p, faultproxy.Rule{Fault: faultproxy.Fault{BlackHole: true}})
	done := make(chan result)
	go func() { done <- ask(t, http.MethodPut, p.URL+"/b/k", "hello") }()
	for p.Counters().BytesIn != 5 {
		select {
		case r := <-done:
			t.Fatalf("answered: %+v", r)
		case <-time.After(time.Millisecond):
		}
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if r := <-done; r.err == nil || effects.Load() != 0 {
		t.Errorf("got %+v, %d effects", r, effects.Load())
	}
}

func TestSettings_LatencyAndBandwidthSlowDown(t *testing.T) {
	p, _ := start(t)
	p.Set(faultproxy.Settings{Latency: faultproxy.Duration(50 * time.Millisecond)})
	add(t, p, faultproxy.Rule{Fault: faultproxy.Fault{Latency: faultproxy.Duration(30 * time.Millisecond)}})
	begin := time.Now()
	if r := ask(t, http.MethodGet, p.URL+"/b/k", ""); r.err != nil || time.Since(begin) < 80*time.Millisecond {
		t.Errorf("%+v after %v", r, time.Since(begin))
	}
	p.Clear()
	p.Set(faultproxy.Settings{BytesPerSecond: 1 << 20})
	begin = time.Now()
	// 256 KiB in and 10 bytes out at 1 MiB/s take a quarter of a second.
	if r := ask(t, http.MethodPut, p.URL+"/b/k", strings.Repeat("x", 256<<10)); r.err != nil || time.Since(begin) < 240*time.Millisecond {
		t.Errorf("%+v after %v", r, time.Since(begin))
	}
}

func TestProxy_UpstreamGoneIs502(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	p, err := faultproxy.Start("127.0.0.1:0", gone.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	if got := ask(t, http.MethodGet, p.URL+"/b/k", ""); got.status != 502 || !strings.Contains(got.body, "InternalError") {
		t.Errorf("got %+v", got)
	}
}

func TestClassify_KnowsEveryOperation(t *testing.T) {
	seen := map[external.Op]bool{}
	for _, c := range []struct {
		method, target, copySource string
		op                         external.Op
		key                        string
	}{
		{"GET", "/b?list-type=2&prefix=d%2F", "", external.OpList, "d/"},
		{"GET", "/b/?uploads&prefix=k", "", external.OpListUploads, "k"},
		{"HEAD", "/b/d/k", "", external.OpHead, "d/k"},
		{"GET", "/b/d/k?x-id=GetObject", "", external.OpGet, "d/k"},
		{"PUT", "/b/d%20/k?x-id=PutObject", "", external.OpPut, "d /k"},
		{"PUT", "/b/k", "b/src", external.OpCopy, "k"},
		{"DELETE", "/b/k", "", external.OpDelete, "k"},
		{"POST", "/b/k?uploads=", "", external.OpCreateUpload, "k"},
		{"PUT", "/b/k?partNumber=1&uploadId=u", "", external.OpUploadPart, "k"},
		{"PUT", "/b/k?partNumber=1&uploadId=u", "b/src", external.OpCopyPart, "k"},
		{"POST", "/b/k?uploadId=u", "", external.OpCompleteUpload, "k"},
		{"DELETE", "/b/k?uploadId=u", "", external.OpAbortUpload, "k"},
		{"PUT", "/b", "", faultproxy.OpOther, ""},
		{"GET", "/", "", faultproxy.OpOther, ""},
	} {
		r := httptest.NewRequest(c.method, c.target, nil)
		if c.copySource != "" {
			r.Header.Set("X-Amz-Copy-Source", c.copySource)
		}
		op, key := faultproxy.Classify(r)
		if op != c.op || key != c.key {
			t.Errorf("%s %s: got %s %q, want %s %q", c.method, c.target, op, key, c.op, c.key)
		}
		seen[op] = true
	}
	for _, op := range external.Ops() {
		if !seen[op] {
			t.Errorf("no request is %s", op)
		}
	}
}

func TestControl_RulesSettingsAndCounters(t *testing.T) {
	p, _ := start(t)
	remote := httptest.NewServer(p.Control())
	t.Cleanup(remote.Close)
	want := func(method, path, body string, status int, answer string) {
		t.Helper()
		if got := ask(t, method, remote.URL+path, body); got.err != nil || got.status != status || !strings.Contains(got.body, answer) {
			t.Errorf("%s %s: got %+v, want %d %s", method, path, got, status, answer)
		}
	}
	want("POST", "/rules", `{"op":"Get","times":1,"status":503,"latency":"1ms"}`, 200, `{"id":"1"}`)
	want("POST", "/rules", `{"op":"Put","truncate":0}`, 200, `{"id":"2"}`)
	want("POST", "/rules", `{"op":"nonsense"}`, 400, "no operation")
	want("POST", "/rules", `{"oops":1}`, 400, "unknown field")
	want("GET", "/rules", "", 200, `{"id":"1","op":"Get","times":1,"latency":"1ms","status":503}`)
	if got := ask(t, "GET", p.URL+"/b/k", ""); got.status != 503 {
		t.Errorf("got %+v", got)
	}
	want("GET", "/counters", "", 200, `"requests":{"Get":1},"faults":{"Get":1}`)
	want("DELETE", "/rules/1", "", 200, "")
	want("DELETE", "/rules/1", "", 404, "no such rule")
	want("DELETE", "/rules", "", 200, "")
	want("GET", "/rules", "", 200, "[]")
	want("PUT", "/settings", `{"latency":"2ms","bytesPerSecond":5000000}`, 200, "")
	want("GET", "/settings", "", 200, `{"latency":"2ms","bytesPerSecond":5000000}`)
	want("DELETE", "/counters", "", 200, "")
	want("GET", "/counters", "", 200, `"requests":{},"faults":{}`)
	if fmt.Sprint(p.Settings().BytesPerSecond) != "5000000" {
		t.Errorf("settings: %+v", p.Settings())
	}
}
