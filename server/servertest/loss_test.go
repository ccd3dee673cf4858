//go:build integration

package servertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server"
	"github.com/objcache/objcache/test/wait"
)

// noFlush keeps everything dirty that nobody flushes.
func noFlush(c *server.Config) { c.FlushInterval = server.Duration(time.Hour) }

// mirrored waits until every server's neighbour has all of its rows.
func (r *rig) mirrored() {
	r.t.Helper()
	wait.Until(r.t, 30*time.Second, "mirrors that have everything", func() bool {
		for _, s := range r.cl.Servers {
			if s.Mirrored() < s.Applied() {
				return false
			}
		}
		return true
	})
}

// destroy ends server i without letting it finish anything, and everything on its disk.
func (c *Cluster) destroy(i int) {
	c.t.Helper()
	c.mu.Lock()
	s := c.Servers[i]
	c.Servers[i] = nil
	c.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Close(ctx); err != nil {
		c.t.Errorf("stop server %d: %v", i, err)
	}
	if err := os.RemoveAll(c.Configs[i].StateDir); err != nil {
		c.t.Fatal(err)
	}
	for j := range c.Configs {
		c.Configs[j].Formed = true
	}
}

// restored waits until server i agrees with the others again and nothing is lost that has not been given up, and returns the losses by path.
func (r *rig) restored(i int) map[string]string {
	r.t.Helper()
	lost := map[string]string{}
	wait.Until(r.t, time.Minute, "the comparison of the groups", func() bool {
		st, err := r.cl.Servers[i].Status(r.t.Context())
		return err == nil && st.GetRebuilt().GetCompared()
	})
	wait.Until(r.t, time.Minute, "files that go back to what external storage has", func() bool {
		for _, s := range r.cl.Servers {
			n, err := s.Lost()
			if err != nil || n > 0 {
				return false
			}
		}
		return true
	})
	for _, s := range r.cl.Servers {
		for _, l := range r.losses(s.Address(), 0) {
			lost[l.GetPath()] = l.GetKept()
		}
	}
	return lost
}

// losses is what a server tells.
func (r *rig) losses(address string, forget int64) (out []*rpc.Loss) {
	r.t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	stream, err := rpc.NewAdminClient(conn).Losses(r.t.Context(), &rpc.LossesRequest{Forget: forget})
	for err == nil {
		var l *rpc.Loss
		if l, err = stream.Recv(); err == nil {
			out = append(out, l)
		}
	}
	if !errors.Is(err, io.EOF) {
		r.t.Fatal(err)
	}
	return out
}

// content is what a path has; nil when it is not there.
func (r *rig) content(p ...string) []byte {
	r.t.Helper()
	a := objcache.Attr{Ino: r.b}
	for _, n := range p {
		var err error
		if a, err = r.c.Lookup(r.t.Context(), a.Ino, n); errors.Is(err, objcache.NotExist) {
			return nil
		} else if err != nil {
			r.t.Fatalf("lookup %q: %v", n, err)
		}
	}
	return r.read(a.Ino)
}

func TestLoss_OfADiskIsToldByNameAndNothingElseIsLost(t *testing.T) {
	r := newRig(t, 3, noFlush)
	const dirs = 12
	const large = objcache.ChunkSize + 100_000
	first, second := map[string][]byte{}, map[string][]byte{}
	inos := map[string]objcache.Ino{}
	size := map[string]int{"small": 1000, "replaced": 60_000, "middle": 100_000, "large": large, "young": 80_000, "clean": 50_000, "moved": 70_000}
	seed := uint64(1)
	for i := range dirs {
		d := fmt.Sprint("d", i)
		ino := r.mkdir(r.b, d)
		for _, n := range slices.Sorted(maps.Keys(size)) {
			if n == "large" && i%4 != 0 || n == "young" {
				continue
			}
			p := path.Join(d, n)
			first[p] = random(size[n], seed)
			seed++
			inos[p] = r.write(ino, n, first[p])
		}
	}
	r.flush()
	for i := range dirs {
		d := fmt.Sprint("d", i)
		dir := r.lookup(d).Ino
		for _, n := range slices.Sorted(maps.Keys(size)) {
			p := path.Join(d, n)
			if first[p] == nil && n != "young" {
				continue
			}
			body := random(size[n], seed)
			seed++
			switch n {
			case "clean":
				body = first[p]
			case "young":
				r.write(dir, n, body)
			case "replaced": // the way editors save
				r.write(dir, "tmp", body)
				if err := r.c.Rename(t.Context(), dir, "tmp", dir, n, 0); err != nil {
					t.Fatal(err)
				}
			case "moved":
				r.overwrite(inos[p], 0, body)
				if err := r.c.Rename(t.Context(), dir, n, dir, "new", 0); err != nil {
					t.Fatal(err)
				}
				first[path.Join(d, "new")] = first[p]
				delete(first, p)
				p = path.Join(d, "new")
			default:
				r.overwrite(inos[p], 0, body)
			}
			second[p] = body
		}
	}
	r.mirrored()
	r.cl.destroy(1)
	r.cl.Up(1)
	told := r.restored(1)
	lost := map[string]bool{}
	for _, p := range slices.Sorted(maps.Keys(second)) {
		d, n := path.Split(p)
		got := r.content(path.Clean(d), n)
		switch {
		case bytes.Equal(got, second[p]) && got != nil:
		case bytes.Equal(got, first[p]):
			lost["data/"+p] = true
		default:
			t.Errorf("%s has %d bytes that are neither version", p, len(got))
		}
		if size[n] <= objcache.InlineSize && size[n] > 0 && lost["data/"+p] {
			t.Errorf("%s is lost although its bytes were in its row", p)
		}
	}
	t.Logf("%d of %d files lost their latest content", len(lost), len(second))
	if len(lost) == 0 || len(lost) > len(second)*2/3 {
		t.Error("a third of the files should have lost their latest content")
	}
	for p := range lost {
		if _, ok := told[p]; !ok {
			t.Errorf("the loss of %s was not told", p)
		}
	}
	for p := range told {
		if !lost[p] {
			t.Errorf("%s was told lost and is not", p)
		}
	}
	for _, s := range r.cl.Servers {
		r.losses(s.Address(), time.Now().UnixNano())
		if left := r.losses(s.Address(), 0); len(left) > 0 {
			t.Errorf("%d losses are told after they were to be forgotten", len(left))
		}
	}
	r.flush()
	again := r.reloadWith(3, nil)
	for p, body := range second {
		d, n := path.Split(p)
		if lost["data/"+p] {
			body = first[p]
		}
		if got := again.content(path.Clean(d), n); !bytes.Equal(got, body) {
			t.Errorf("%s is another after a reload: %d bytes, want %d", p, len(got), len(body))
		}
	}
}
