package faultproxy

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/objcache/objcache/server/external"
)

// Rule says which requests go wrong and how. Empty matchers match everything.
type Rule struct {
	ID     string      `json:"id,omitempty"` // given by Add
	Op     external.Op `json:"op,omitempty"`
	Method string      `json:"method,omitempty"`
	Key    string      `json:"key,omitempty"`   // regular expression on the key (List, ListUploads: the prefix)
	Skip   int         `json:"skip,omitempty"`  // that many matching requests pass first
	Times  int         `json:"times,omitempty"` // then that many are hit; 0: all
	Fault
}

// Fault is how a request goes wrong. The fields that end a request without forwarding it come first; of several rules that
// hit one request, all apply.
type Fault struct {
	Latency   Duration `json:"latency,omitempty"`   // besides Settings.Latency
	Reset     bool     `json:"reset,omitempty"`     // reset the connection instead of forwarding
	BlackHole bool     `json:"blackHole,omitempty"` // never forward, never answer
	Status    int      `json:"status,omitempty"`    // answer this instead of forwarding
	Code      string   `json:"code,omitempty"`      // the S3 error code for Status; default by status
	// LostReply forwards the request, waits for its effect and resets the connection.
	LostReply bool `json:"lostReply,omitempty"`
	// Truncate closes the connection after that many bytes of the answer's body.
	Truncate *int64 `json:"truncate,omitempty"`
	// LengthDelta is added to Content-Length; less than all bytes are sent when it is negative.
	LengthDelta int64 `json:"lengthDelta,omitempty"`
}

func (f Fault) and(g Fault) Fault {
	f.Latency += g.Latency
	f.Reset = f.Reset || g.Reset
	f.BlackHole = f.BlackHole || g.BlackHole
	f.LostReply = f.LostReply || g.LostReply
	f.LengthDelta += g.LengthDelta
	if g.Status != 0 {
		f.Status, f.Code = g.Status, g.Code
	}
	if g.Truncate != nil {
		f.Truncate = g.Truncate
	}
	return f
}

func (f Fault) code() string {
	if f.Code != "" {
		return f.Code
	}
	switch f.Status {
	case 403:
		return "AccessDenied"
	case 404:
		return "NoSuchKey"
	case 412:
		return "PreconditionFailed"
	case 503:
		return "SlowDown"
	default:
		return "InternalError"
	}
}

type activeRule struct {
	Rule
	key  *regexp.Regexp
	seen int
}

func (r *activeRule) hits(method string, op external.Op, key string) bool {
	if r.Op != "" && r.Op != op || r.Method != "" && r.Method != method || !r.key.MatchString(key) {
		return false
	}
	r.seen++
	return r.seen > r.Skip && (r.Times == 0 || r.seen <= r.Skip+r.Times)
}

// Add puts a rule in force and returns its id.
func (p *Proxy) Add(r Rule) (string, error) {
	key, err := regexp.Compile(r.Key)
	if err != nil {
		return "", fmt.Errorf("rule: key: %w", err)
	}
	if r.Op != "" && r.Op != OpOther && !slices.Contains(external.Ops(), r.Op) {
		return "", fmt.Errorf("rule: no operation %q", r.Op)
	}
	if r.Status != 0 && (r.Status < 200 || r.Status > 599) {
		return "", fmt.Errorf("rule: no status %d", r.Status)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.nextID++
	r.ID = strconv.Itoa(p.mu.nextID)
	p.mu.rules = append(p.mu.rules, &activeRule{Rule: r, key: key})
	return r.ID, nil
}

// Remove ends a rule; it reports whether there was one.
func (p *Proxy) Remove(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.mu.rules)
	p.mu.rules = slices.DeleteFunc(p.mu.rules, func(r *activeRule) bool { return r.ID == id })
	return len(p.mu.rules) < n
}

// Clear ends all rules.
func (p *Proxy) Clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.rules = nil
}

// Rules lists the rules in force.
func (p *Proxy) Rules() []Rule {
	p.mu.Lock()
	defer p.mu.Unlock()
	rules := make([]Rule, len(p.mu.rules))
	for i, r := range p.mu.rules {
		rules[i] = r.Rule
	}
	return rules
}

// Duration is written as in "150ms".
type Duration time.Duration

// MarshalText writes what UnmarshalText reads.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads a duration such as "1.5s".
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	*d = Duration(v)
	return err
}
