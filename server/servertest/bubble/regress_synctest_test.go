package bubble

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/client"
	"github.com/objcache/objcache/server/external/memstore"
)

// scripted runs a schedule against a cluster without other faults. The schedule gets the bubble's own test: a context of the test outside would make
// its channel inside, and be cancelled outside.
func scripted(t *testing.T, servers int, f func(t *testing.T, ctx context.Context, c *cluster, cl *client.Client, dir objcache.Ino)) {
	t.Helper()
	scriptedOn(t, servers, false, f)
}

// scriptedOn is scripted; with late, requests to the bucket run on there after whoever sent them has crashed.
func scriptedOn(t *testing.T, servers int, late bool, f func(t *testing.T, ctx context.Context, c *cluster, cl *client.Client, dir objcache.Ino)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		j, faults := &journal{}, &Faults{}
		set := Settings{Seed: 1, Servers: servers, Capacity: 256 << 20, FlushInterval: time.Hour, ExternalTTL: time.Hour, Upload: "background"}
		fail := func(err error) { t.Error(err) }
		c, err := newCluster(set, 1, memstore.New(memstore.Config{}), newChaos(1, 0, late, faults), faults, j.logger(slog.LevelInfo), fail)
		if err != nil {
			t.Fatal(err)
		}
		defer c.stop()
		cl, err := c.client("c0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := cl.Close(); err != nil {
				t.Error(err)
			}
		}()
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		b, err := cl.Lookup(ctx, objcache.RootIno, bucketDir)
		if err != nil {
			t.Fatal(err)
		}
		f(t, ctx, c, cl, b.Ino)
		if t.Failed() {
			t.Log(j)
		}
	})
}

func outstanding(t *testing.T, c *cluster) (n uint64) {
	t.Helper()
	for _, x := range c.nodes {
		s, err := x.alive().srv.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		n += s.GetOutstandingWrites()
	}
	return n
}

// A piece could not be staged, so that the flush sends everything again, little as it is: what is left of the first attempt must not stay.
func TestFlush_StagedAgainLeavesNothingOutstanding(t *testing.T) {
	scripted(t, 1, func(t *testing.T, ctx context.Context, c *cluster, cl *client.Client, dir objcache.Ino) {
		a, err := cl.Create(ctx, dir, "f", objcache.NewNode{Mode: objcache.ModeRegular | 0o600})
		if err != nil {
			t.Fatal(err)
		}
		data := fill("value;")
		first, second := objcache.Range{Len: 6000}, objcache.Range{Off: 6000, Len: valueSize - 6000}
		if err := cl.Stage(ctx, a.Ino, first, at{0, data}); err != nil {
			t.Fatal(err)
		}
		disk := c.nodes[0].alive().disk
		disk.fill(func(name string) bool { return strings.Contains(name, "/chunks/") })
		if err := cl.Stage(ctx, a.Ino, second, at{0, data}); !errors.Is(err, objcache.NoSpace) {
			t.Fatalf("staged on a full disk: %v", err)
		}
		disk.fill(nil)
		fl := objcache.Flush{Ino: a.Ino, Staged: []objcache.Range{first, second}, Src: at{0, data}, Size: valueSize, Mtime: time.Now()}
		if a, err = cl.Flush(ctx, fl); err != nil {
			t.Fatal(err)
		}
		if b, err := readAll(ctx, cl, a); err != nil || string(b) != string(data) {
			t.Errorf("%d bytes, not those that were written: %v", len(b), err)
		}
		if n := outstanding(t, c); n != 0 {
			t.Errorf("%d writes are outstanding that no flush will name", n)
		}
	})
}

// Two renames of the same name to the same place: the second finds the file at the new name, and must not take that for "nothing to do".
func TestRename_OfTwoOfTheSameNameOneSucceeds(t *testing.T) {
	scripted(t, 3, func(t *testing.T, ctx context.Context, c *cluster, cl *client.Client, dir objcache.Ino) {
		other, err := c.client("c1")
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := other.Close(); err != nil {
				t.Error(err)
			}
		}()
		var dirs []objcache.Ino
		for i := range 4 { // some two of them live in different groups
			a, err := cl.Create(ctx, dir, fmt.Sprintf("d%d", i), objcache.NewNode{Mode: objcache.ModeDir | 0o755})
			if err != nil {
				t.Fatal(err)
			}
			dirs = append(dirs, a.Ino)
		}
		for i := range 400 {
			from, to := dirs[i%4], dirs[(i+1+i/4%3)%4]
			if _, err := cl.Create(ctx, from, "a", objcache.NewNode{Mode: objcache.ModeRegular | 0o600}); err != nil {
				t.Fatal(err)
			}
			var errs [2]error
			var both sync.WaitGroup
			both.Go(func() { errs[0] = cl.Rename(ctx, from, "a", to, "b", 0) })
			both.Go(func() { errs[1] = other.Rename(ctx, from, "a", to, "b", 0) })
			both.Wait()
			if (errs[0] == nil) == (errs[1] == nil) {
				t.Fatalf("round %d: %v and %v, one of two renames should succeed", i, errs[0], errs[1])
			}
			if err := cl.Unlink(ctx, to, "b"); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A name that two files had in turns: its object is the last writer's, who must delete it, whoever had the name after that without writing.
func TestPersist_TheObjectOfANameThatWentToAndFroIsDeleted(t *testing.T) {
	scripted(t, 1, func(t *testing.T, ctx context.Context, c *cluster, cl *client.Client, dir objcache.Ino) {
		ok := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		create := func(name, body string) objcache.Ino {
			a, err := cl.Create(ctx, dir, name, objcache.NewNode{Mode: objcache.ModeRegular | 0o600})
			ok(err)
			rs := []objcache.Range{{Len: int64(len(body))}}
			_, err = cl.Flush(ctx, objcache.Flush{Ino: a.Ino, Dirty: rs, Src: at{0, []byte(body)}, Size: int64(len(body)), Mtime: time.Now()})
			ok(err)
			return a.Ino
		}
		a, b := create("n5", "first"), create("n1", "second")
		for _, name := range []string{"n2", "n3"} {
			_, err := cl.Link(ctx, a, dir, name)
			ok(err)
		}
		ok(cl.Persist(ctx, a))
		ok(cl.Persist(ctx, b))
		ok(cl.Rename(ctx, dir, "n1", dir, "n5", 0))
		ok(cl.Persist(ctx, b)) // over the first file's object
		const exchange = 2
		ok(cl.Rename(ctx, dir, "n2", dir, "n5", exchange))
		ok(cl.Unlink(ctx, dir, "n5"))
		for range 5 {
			ok(cl.Work(ctx, rpc.WorkRequest_FLUSH, 0, func(*rpc.Progress) {}))
			time.Sleep(10 * time.Second)
		}
		got := map[string]string{}
		for k, v := range c.bucket.Objects() {
			if !strings.HasPrefix(k, ".objcache/") {
				got[k] = string(v)
			}
		}
		if want := map[string]string{"n2": "second", "n3": "first"}; !maps.Equal(got, want) {
			t.Errorf("the bucket holds %v, should hold %v", got, want)
		}
	})
}

// An open is sent again because its answer was lost: it is one open, and its close ends it.
func TestOpen_ThatWasSentTwiceIsClosedOnce(t *testing.T) {
	scripted(t, 1, func(t *testing.T, ctx context.Context, c *cluster, cl *client.Client, dir objcache.Ino) {
		a, err := cl.Create(ctx, dir, "f", objcache.NewNode{Mode: objcache.ModeRegular | 0o600})
		if err != nil {
			t.Fatal(err)
		}
		answers := direction{host(0), "c0"}
		c.net.block(answers, true)
		opened := make(chan error, 1)
		go func() {
			_, err := cl.Open(ctx, a.Ino)
			opened <- err
		}()
		time.Sleep(100 * time.Millisecond)
		c.net.snap(answers.from, answers.to)
		c.net.block(answers, false)
		if err := <-opened; err != nil {
			t.Fatal(err)
		}
		cl.Release(a.Ino)
		if err := cl.Unlink(ctx, dir, "f"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(resting)
		if err := cl.Work(ctx, rpc.WorkRequest_FLUSH, 0, func(*rpc.Progress) {}); err != nil {
			t.Fatal(err)
		}
		if s, err := c.nodes[0].alive().srv.Status(ctx); err != nil || s.GetDirtyFiles() > 0 {
			t.Errorf("%d inodes are still there for a descriptor that was closed: %v", s.GetDirtyFiles(), err)
		}
	})
}
