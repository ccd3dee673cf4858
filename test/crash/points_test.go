//go:build integration

package crash

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/objcache/objcache/dev"
	"github.com/objcache/objcache/failpoint"
)

// victim is one process that failpoints are armed in.
type victim struct {
	c      *cluster
	name   string // of dev: server-1, mount-1
	dir    string // where dev keeps its log
	client *http.Client
	url    string
	seen   int64 // bytes of the log that are old
}

func (c *cluster) victim(st dev.Status, name string) (*victim, error) {
	for _, s := range st.Servers {
		if s.Name == name {
			return &victim{c: c, name: name, dir: filepath.Join(c.state, "servers", name), client: http.DefaultClient, url: "http://" + s.Metrics}, nil
		}
	}
	if n, ok := strings.CutPrefix(name, "mount-"); ok {
		return &victim{c: c, name: name, dir: filepath.Join(c.state, "mounts", n), url: "http://mount"}, nil
	}
	return nil, fmt.Errorf("no process %s", name)
}

// connect finds the socket of a mount's process, which is another after each start.
func (v *victim) connect() error {
	if !strings.HasPrefix(v.name, "mount-") {
		return nil
	}
	var record struct{ Socket string }
	b, err := os.ReadFile(filepath.Join(v.dir, "record.json"))
	if err := errors.Join(err, json.Unmarshal(b, &record)); err != nil {
		return err
	}
	v.client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", record.Socket)
	}}}
	return nil
}

// arm arms a point, and remembers where the log ends now.
func (v *victim) arm(ctx context.Context, spec string) error {
	if err := v.connect(); err != nil {
		return err
	}
	st, err := os.Stat(filepath.Join(v.dir, "log"))
	if err != nil {
		return err
	}
	v.seen = st.Size()
	return v.post(ctx, spec)
}

func (v *victim) post(ctx context.Context, spec string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, v.url+"/failpoints", bytes.NewBufferString(spec))
	if err != nil {
		return err
	}
	resp, err := v.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b, err := io.ReadAll(resp.Body)
		return errors.Join(fmt.Errorf("%s at %s: %s: %s", spec, v.name, resp.Status, b), err)
	}
	return nil
}

// struck reports whether the process has said since arm that it has reached the point.
func (v *victim) struck(p failpoint.Info, verb string) (bool, error) {
	f, err := os.Open(filepath.Join(v.dir, "log"))
	if err != nil {
		return false, err
	}
	defer f.Close()
	if _, err := f.Seek(v.seen, io.SeekStart); err != nil {
		return false, err
	}
	b, err := io.ReadAll(f)
	return bytes.Contains(b, []byte("failpoint "+p.Name+": "+verb+"\n")), err
}

// within asks ok every few milliseconds until it says yes, at most for a time.
func within(ctx context.Context, limit time.Duration, ok func() (bool, error)) (bool, error) {
	tick := time.NewTicker(3 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(limit); ; {
		if yes, err := ok(); yes || err != nil || time.Now().After(end) {
			return yes, err
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-tick.C:
		}
	}
}

// pid is the number of the process now.
func (v *victim) pid() (int, error) {
	var p struct{ PID int }
	b, err := os.ReadFile(filepath.Join(v.dir, "pid"))
	return p.PID, errors.Join(err, json.Unmarshal(b, &p))
}

// states are the letters of all threads: T is stopped, Z and X are over. A process whose first thread is over may still hold its files.
func (v *victim) states() (string, error) {
	pid, err := v.pid()
	if err != nil {
		return "", err
	}
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		return "", err
	}
	var all []byte
	for _, path := range threads {
		b, err := os.ReadFile(path)
		if i := bytes.LastIndexByte(b, ')'); err == nil && i+2 < len(b) {
			all = append(all, b[i+2])
		}
	}
	return string(all), nil
}

func (v *victim) dead() (bool, error) {
	s, err := v.states()
	return strings.Trim(s, "ZX") == "", err
}

func (v *victim) stopped() (bool, error) {
	s, err := v.states()
	return s != "" && strings.Trim(s, "T") == "", err
}

// start starts the process; with a spec, a point is armed from its first instruction on.
func (v *victim) start(spec string) error {
	var env []string
	if spec != "" {
		env = append(env, failpoint.EnvArm+"="+spec)
	}
	_, err := v.c.l.runWith(env, v.c.path, "dev", "--state", v.c.state, "start", v.name)
	return err
}
