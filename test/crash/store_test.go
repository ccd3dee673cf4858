//go:build integration

package crash

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/objcache/objcache/failpoint"
)

// gate stands between the servers and S3. Shut, it accepts connections and lets no byte through in either direction.
type gate struct {
	net.Listener
	to string
	mu struct {
		sync.Mutex
		open chan struct{} // closed while bytes pass
	}
}

func newGate(t *testing.T, to string) *gate {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // there is nothing to cancel
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	g := &gate{Listener: l, to: to}
	g.mu.open = make(chan struct{})
	close(g.mu.open)
	go g.serve()
	return g
}

func (g *gate) serve() {
	for {
		here, err := g.Accept()
		if err != nil {
			return
		}
		go func() {
			<-g.opened()
			there, err := net.Dial("tcp", g.to) //nolint:noctx // to this machine
			if err != nil {
				_ = here.Close()
				return
			}
			go g.pass(there, here)
			g.pass(here, there)
		}()
	}
}

func (g *gate) pass(to, from net.Conn) {
	defer to.Close()
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		<-g.opened()
		if _, werr := to.Write(b[:n]); err != nil || werr != nil {
			return
		}
	}
}

func (g *gate) opened() chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.open
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.open = make(chan struct{})
}

func (g *gate) reopen() { close(g.opened()) }

// through restarts the servers with configurations that name the gate as the bucket's endpoint.
func (c *cluster) through(g *gate) error {
	b, err := os.ReadFile(filepath.Join(c.state, "buckets.yaml"))
	if err != nil {
		return err
	}
	moved := strings.ReplaceAll(string(b), "http://"+g.to, "http://"+g.Addr().String())
	buckets := filepath.Join(c.state, "gate.yaml")
	if err := os.WriteFile(buckets, []byte(moved), 0o600); err != nil {
		return err
	}
	st, err := c.status()
	if err != nil {
		return err
	}
	for _, s := range st.Servers {
		v, err := c.victim(st, s.Name)
		if err != nil {
			return err
		}
		var cfg map[string]any
		b, err := os.ReadFile(filepath.Join(v.dir, "config.yaml"))
		if err := errors.Join(err, yaml.Unmarshal(b, &cfg)); err != nil {
			return err
		}
		cfg["bucketsFile"] = buckets
		b, err = yaml.Marshal(cfg)
		if err := errors.Join(err, os.WriteFile(filepath.Join(v.dir, "gate.yaml"), b, 0o600)); err != nil {
			return err
		}
		v.config = "gate.yaml"
		if _, err := c.run("kill", s.Name); err != nil {
			return err
		}
		if err := v.start(""); err != nil {
			return err
		}
	}
	return nil
}

// endpoint is where the cluster's S3 server listens.
func (c *cluster) endpoint() (string, error) {
	var all struct {
		Buckets []struct {
			Endpoint string `json:"endpoint"`
		} `json:"buckets"`
	}
	b, err := os.ReadFile(filepath.Join(c.state, "buckets.yaml"))
	if err := errors.Join(err, yaml.Unmarshal(b, &all)); err != nil {
		return "", err
	}
	u, err := url.Parse(all.Buckets[0].Endpoint)
	if err != nil {
		return "", err
	}
	return u.Host, nil
}

// The S3 server dies, or accepts connections and is silent for longer than any single request waits, while programs work.
func TestS3_WhileItIsDeadOrSilentProgramsGoOnAndNothingIsLost(t *testing.T) {
	seed := number(t, "OBJCACHE_SEED", 59)
	t.Parallel()
	path := build(t, "failpoints")
	c := newCluster(t, newLauncher(t, failpoint.S3ResponseMillis+"=1500"), path)
	c.must("up", "--flush-interval", "400ms", "--capacity", "1GiB")
	at, err := c.endpoint()
	if err != nil {
		t.Fatal(err)
	}
	g := newGate(t, at)
	if err := c.through(g); err != nil {
		t.Fatal(err)
	}
	ws := c.workers(seed, true)
	var during [2]int64
	disturb := func(ctx context.Context) error {
		for i, how := range []struct{ begin, end func() error }{
			{func() error { _, err := c.run("kill", "s3"); return err }, func() error { _, err := c.run("start", "s3"); return err }},
			{func() error { g.shut(); return nil }, func() error { g.reopen(); return nil }},
		} {
			if _, err := within(ctx, 2*time.Second, never); err != nil {
				return err
			}
			if err := how.begin(); err != nil {
				return err
			}
			before := acknowledged(ws)
			_, err := within(ctx, 6*time.Second, never)
			during[i] = acknowledged(ws) - before
			if err := errors.Join(err, how.end()); err != nil {
				return err
			}
		}
		return nil
	}
	began := time.Now()
	if err := together(t.Context(), disturb, ws); err != nil {
		t.Fatal(err)
	}
	c.must("flush") // uploads have gone on
	if during[0] == 0 || during[1] == 0 {
		t.Errorf("while S3 was dead %d operations were done, while it was silent %d", during[0], during[1])
	}
	verify(t, c, path, ws)
	t.Logf("seed %d: %d acknowledged operations checked, %d of them while S3 was dead, %d while it was silent, %v", seed, acknowledged(ws), during[0], during[1], time.Since(began).Round(time.Second))
}

// acknowledged counts operations.
func acknowledged(ws []*worker) (n int64) {
	for _, w := range ws {
		n += w.done.Load()
	}
	return n
}

// workers begin with a directory each.
func (c *cluster) workers(seed uint64, large bool) []*worker {
	c.t.Helper()
	var ws []*worker
	for i := range workers {
		w := newWorker(filepath.Join(c.mnt(), bucket, fmt.Sprintf("w%d", i)), seed, uint64(i))
		w.large = large
		if err := os.Mkdir(w.top, 0o755); err != nil {
			c.t.Fatal(err)
		}
		ws = append(ws, w)
	}
	c.t.Cleanup(func() {
		if c.t.Failed() {
			for _, w := range ws {
				c.t.Logf("seed %d, %s:\n %s", seed, w.top, strings.Join(w.log[max(0, len(w.log)-200):], "\n "))
			}
		}
	})
	return ws
}
