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
	"syscall"
	"time"

	"github.com/objcache/objcache/dev"
	"github.com/objcache/objcache/failpoint"
)

// victim is one process that failpoints are armed in.
type victim struct {
	c      *cluster
	name   string // of dev: server-1, mount-1
	dir    string // where dev keeps its log
	config string // of a server, in dir
	client *http.Client
	url    string
	seen   int64 // bytes of the log that are old
}

func (c *cluster) victim(st dev.Status, name string) (*victim, error) {
	for _, s := range st.Servers {
		if s.Name == name {
			return &victim{c: c, name: name, dir: filepath.Join(c.state, "servers", name), config: "config.yaml", client: http.DefaultClient, url: "http://" + s.Metrics}, nil
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

// arm arms points, and remembers where the log ends now.
func (v *victim) arm(ctx context.Context, spec string) error {
	if err := v.connect(); err != nil {
		return err
	}
	if err := v.mark(); err != nil {
		return err
	}
	return v.post(ctx, spec)
}

// mark forgets what the process has said up to now.
func (v *victim) mark() error {
	st, err := os.Stat(filepath.Join(v.dir, "log"))
	if err == nil {
		v.seen = st.Size()
	}
	return err
}

func (v *victim) post(ctx context.Context, spec string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second) // it may stop before it answers
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, v.url+"/failpoints", strings.NewReader(spec))
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

// said are the lines of the log since mark.
func (v *victim) said() ([]string, error) {
	f, err := os.Open(filepath.Join(v.dir, "log"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := f.Seek(v.seen, io.SeekStart); err != nil {
		return nil, err
	}
	b, err := io.ReadAll(f)
	return strings.Split(string(b), "\n"), err
}

// struck are the points that the process has reached since mark.
func (v *victim) struck(verb string) ([]string, error) {
	lines, err := v.said()
	var out []string
	for _, l := range lines {
		if name, ok := strings.CutPrefix(l, "failpoint "); ok {
			if name, ok = strings.CutSuffix(name, ": "+verb); ok {
				out = append(out, name)
			}
		}
	}
	return out, err
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

// process is what dev's pid file says.
type process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"`
	Boot  string `json:"boot"`
}

func (v *victim) process() (process, error) {
	var p process
	b, err := os.ReadFile(filepath.Join(v.dir, "pid"))
	return p, errors.Join(err, json.Unmarshal(b, &p))
}

// stat are the words of the kernel on a process or thread, from its state on; none when it is gone.
func stat(path string) []string {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
}

// states are the letters of all threads: T is stopped, Z and X are over. A process whose first thread is over may still hold its files.
func (v *victim) states() (string, error) {
	p, err := v.process()
	if err != nil {
		return "", err
	}
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.PID))
	var all strings.Builder
	for _, path := range threads {
		if w := stat(path); len(w) > 0 {
			all.WriteString(w[0])
		}
	}
	return all.String(), err
}

func (v *victim) dead() (bool, error) {
	s, err := v.states()
	return strings.Trim(s, "ZX") == "", err
}

func (v *victim) stopped() (bool, error) {
	s, err := v.states()
	return s != "" && strings.Trim(s, "T") == "", err
}

func (v *victim) signal(s syscall.Signal) error {
	p, err := v.process()
	if err != nil {
		return err
	}
	return syscall.Kill(p.PID, s)
}

// start starts a server as dev does, but does not wait until it answers: it may be armed to die before. The points armed in spec are from its first
// instruction on.
func (v *victim) start(spec string) error {
	if err := v.mark(); err != nil {
		return err
	}
	r, err := v.c.l.do(order{Path: v.c.path, Args: []string{"server", "--config", filepath.Join(v.dir, v.config)}, Log: filepath.Join(v.dir, "log"),
		Env: []string{failpoint.EnvArm + "=" + spec}})
	if err != nil {
		return err
	}
	p, err := v.process()
	if err != nil {
		return err
	}
	p.PID, p.Start = r.PID, 0
	if w := stat(fmt.Sprintf("/proc/%d/stat", r.PID)); len(w) > 19 {
		if _, err := fmt.Sscan(w[19], &p.Start); err != nil {
			return err
		}
	}
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	path := filepath.Join(v.dir, "pid")
	return errors.Join(os.WriteFile(path+".new", b, 0o600), os.Rename(path+".new", path))
}

// startByDev starts a mount, or a server that shall answer.
func (v *victim) startByDev(spec string) error {
	_, err := v.c.l.runWith([]string{failpoint.EnvArm + "=" + spec}, v.c.path, "dev", "--state", v.c.state, "start", v.name)
	return err
}
