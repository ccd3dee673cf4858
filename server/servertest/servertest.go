// Package servertest runs whole clusters inside a test process, on real disks and a real S3 server. It promises to leave nothing
// running behind. It knows how servers are assembled, not what they do.
package servertest

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/objcache/objcache/dev"
	"github.com/objcache/objcache/server"
	"github.com/objcache/objcache/server/client"
)

// Cluster is a cluster of servers in this process.
type Cluster struct {
	t       testing.TB
	Dir     string
	Configs []server.Config
	Servers []*server.Server // nil when stopped
	mu      sync.Mutex
	log     lines
}

// Config is what a test says of its cluster.
type Config struct {
	Servers int
	Buckets []server.Bucket
	Change  func(*server.Config)
}

// Start starts a cluster that is stopped with the test.
func Start(t testing.TB, c Config) *Cluster {
	t.Helper()
	cl := &Cluster{t: t, Dir: t.TempDir()}
	var members []server.Member
	for i := range c.Servers {
		members = append(members, server.Member{Group: uint32(i + 1), Name: fmt.Sprintf("server-%d", i), Address: freeAddress(t)})
	}
	for i, m := range members {
		conf := server.Default()
		conf.Name, conf.Listen, conf.Members, conf.Buckets = m.Name, m.Address, members, c.Buckets
		conf.StateDir, conf.Cluster, conf.CapacityBytes = filepath.Join(cl.Dir, fmt.Sprint(i)), "test", 4<<30
		if c.Change != nil {
			c.Change(&conf)
		}
		cl.Configs = append(cl.Configs, conf)
		cl.Servers = append(cl.Servers, nil)
	}
	t.Cleanup(cl.stopAll)
	for i := range cl.Configs {
		cl.Up(i)
	}
	return cl
}

func freeAddress(t testing.TB) string {
	t.Helper()
	as, err := dev.FreeTestAddresses(1)
	if err != nil {
		t.Fatal(err)
	}
	return as[0]
}

// Up starts server i.
func (c *Cluster) Up(i int) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	s, err := server.Open(ctx, c.Configs[i], logger(io.MultiWriter(writer{c.t}, &c.log)))
	if err != nil {
		c.t.Fatalf("start server %d: %v", i, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Servers[i] = s
}

// Down stops server i; its disk stays.
func (c *Cluster) Down(i int) {
	c.t.Helper()
	c.mu.Lock()
	s := c.Servers[i]
	c.Servers[i] = nil
	c.mu.Unlock()
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		c.t.Errorf("stop server %d: %v", i, err)
	}
}

func (c *Cluster) stopAll() {
	for i := range c.Servers {
		c.Down(i)
	}
}

// Client opens a session that ends with the test.
func (c *Cluster) Client() *client.Client {
	c.t.Helper()
	var addresses []string
	for _, m := range c.Configs[0].Members {
		addresses = append(addresses, m.Address)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	cl, err := client.Open(ctx, client.Config{Servers: addresses, Logger: Logger(c.t)})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		if err := cl.Close(); err != nil {
			c.t.Error(err)
		}
	})
	return cl
}

// Logged is how many lines with these words the servers have logged.
func (c *Cluster) Logged(words string) int {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	return strings.Count(c.log.text.String(), words)
}

// lines keeps what is logged.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// Logger logs into the test.
func Logger(t testing.TB) *slog.Logger { return logger(writer{t}) }

func logger(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelInfo}))
}

type writer struct{ t testing.TB }

func (w writer) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}
