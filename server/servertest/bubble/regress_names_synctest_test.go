package bubble

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/client"
	"github.com/objcache/objcache/server/external"
	"github.com/objcache/objcache/server/external/memstore"
)

// script is a schedule of a few files with short bodies, each step of which must succeed.
type script struct {
	t   *testing.T
	ctx context.Context
	c   *cluster
	cl  *client.Client
	dir objcache.Ino
}

func (s script) ok(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s script) create(name, body string) objcache.Ino {
	s.t.Helper()
	a, err := s.cl.Create(s.ctx, s.dir, name, objcache.NewNode{Mode: objcache.ModeRegular | 0o600})
	s.ok(err)
	s.write(a.Ino, body)
	return a.Ino
}

func (s script) write(ino objcache.Ino, body string) {
	s.t.Helper()
	rs := []objcache.Range{{Len: int64(len(body))}}
	_, err := s.cl.Flush(s.ctx, objcache.Flush{Ino: ino, Dirty: rs, Src: at{0, []byte(body)}, Size: int64(len(body)), Mtime: time.Now()})
	s.ok(err)
}

func (s script) rename(from, to string) {
	s.t.Helper()
	s.ok(s.cl.Rename(s.ctx, s.dir, from, s.dir, to, 0))
}

// flush persists everything and returns what could not be.
func (s script) flush() (problems []*rpc.Problem) {
	s.t.Helper()
	s.ok(s.cl.Work(s.ctx, rpc.WorkRequest_FLUSH, 0, func(p *rpc.Progress) { problems = p.GetProblems() }))
	return problems
}

// bucketHolds wants exactly these objects.
func (s script) bucketHolds(want map[string]string) {
	s.t.Helper()
	got := map[string]string{}
	for k, v := range s.c.bucket.Objects() {
		if !strings.HasPrefix(k, ".objcache/") {
			got[k] = string(v)
		}
	}
	if !maps.Equal(got, want) {
		s.t.Errorf("the bucket holds %v, should hold %v", got, want)
	}
}

// A file that comes back to a name where another file of ours wrote meanwhile: that object is no other client's, and nothing is kept beside it.
func TestPersist_AFileThatComesBackOverAnothersObjectKeepsNothingBeside(t *testing.T) {
	scripted(t, 1, func(t *testing.T, ctx context.Context, c *cluster, cl *client.Client, dir objcache.Ino) {
		s := script{t, ctx, c, cl, dir}
		x := s.create("n2", "first")
		s.ok(cl.Persist(ctx, x))
		s.rename("n2", "n3")
		y := s.create("n2", "second")
		s.ok(cl.Persist(ctx, y))
		s.rename("n2", "n1")
		s.rename("n3", "n2")
		s.write(x, "third")
		for range 3 {
			s.flush()
			time.Sleep(10 * time.Second)
		}
		s.bucketHolds(map[string]string{"n1": "second", "n2": "third"})
	})
}

// The marker of a new directory is written, but the directory above cannot be told: then it still owes its attributes, and nothing is reported as failed
// that succeeds later.
func TestPersist_ANewDirectoryOwesItsAttributesUntilTheTableAboveKnows(t *testing.T) {
	scripted(t, 2, func(t *testing.T, ctx context.Context, c *cluster, cl *client.Client, dir objcache.Ino) {
		s := script{t, ctx, c, cl, dir}
		v := cl.View()
		name, d := "", objcache.Attr{}
		for i := 0; name == "" || v.OwnerOfInode(d.Ino) == v.OwnerOfInode(dir); i++ {
			var err error
			name = fmt.Sprintf("d%d", i)
			d, err = cl.Create(ctx, dir, name, objcache.NewNode{Mode: objcache.ModeDir | 0o711})
			s.ok(err)
			if i > 20 {
				t.Fatal("every directory lies with its parent")
			}
		}
		way := direction{host(0), host(1)}
		back := direction{way.to, way.from}
		remove := c.bucket.Inject(memstore.Fault{Op: external.OpPut, Match: func(r memstore.Request) bool { return r.Key == name+"/" }, Times: 1,
			Hook: func(context.Context, memstore.Request) error {
				c.net.block(way, true)
				c.net.block(back, true)
				c.net.snap(way.from, way.to)
				return nil
			}})
		short, cancel := context.WithTimeout(ctx, 10*time.Second)
		t.Log("while the two are apart:", cl.Work(short, rpc.WorkRequest_FLUSH, 0, func(*rpc.Progress) {}))
		cancel()
		remove()
		c.net.heal()
		time.Sleep(time.Minute)
		if p := s.flush(); len(p) > 0 {
			t.Errorf("reported as not persisted: %v", p)
		}
		tabled := false
		for k, b := range c.bucket.Objects() {
			tabled = tabled || strings.HasPrefix(k, ".objcache/dirs/") && bytes.Contains(b, []byte(name))
		}
		if !tabled {
			t.Error("no table has the directory's attributes")
		}
	})
}

// A server crashes while a delete is on its way, which takes effect ten seconds later: the name's next object must not be there yet.
func TestTrash_ADeleteOfBeforeACrashDoesNotMeetTheNextObject(t *testing.T) {
	scriptedOn(t, 1, true, func(t *testing.T, ctx context.Context, c *cluster, cl *client.Client, dir objcache.Ino) {
		s := script{t, ctx, c, cl, dir}
		time.Sleep(time.Minute) // until the server may believe that a file is closed
		s.ok(cl.Persist(ctx, s.create("n", "first")))
		c.bucket.Inject(memstore.Fault{Op: external.OpDelete, Match: func(r memstore.Request) bool { return r.Key == "n" }, Times: 1, Delay: 10 * time.Second})
		s.ok(cl.Unlink(ctx, dir, "n"))
		time.Sleep(2 * time.Second)
		n := c.nodes[0]
		if !n.crashLife(n.alive(), 0) {
			t.Fatal("the server is not there to crash")
		}
		s.ok(n.up())
		next := s.create("n", "second")
		for range 4 {
			s.flush()
			time.Sleep(10 * time.Second)
		}
		s.bucketHolds(map[string]string{"n": "second"})
		a, err := cl.Getattr(ctx, next)
		s.ok(err)
		if a.Size != 6 {
			t.Errorf("size %d", a.Size)
		}
	})
}

// undeleted makes external storage refuse to look at an object that is to be deleted, so that the delete has the claim on its name and does not end; until
// the returned function is called.
func (s script) undeleted(key string) (end func()) {
	return s.c.bucket.Inject(memstore.Fault{
		Op: external.OpHead, Match: func(r memstore.Request) bool { return r.Key == key }, Before: objcache.Errorf(objcache.IO, "injected"),
	})
}

// A delete that has the claim on its name fails once. Meanwhile the file gets another name, in the place of a directory on its way, which waits for the
// file that has the claimed name now: the delete ends even so.
func TestTrash_ADeleteEndsThoughItsFileWaitsForADirectory(t *testing.T) {
	scripted(t, 1, func(t *testing.T, ctx context.Context, c *cluster, cl *client.Client, dir objcache.Ino) {
		s := script{t, ctx, c, cl, dir}
		d, err := cl.Create(ctx, dir, "n1", objcache.NewNode{Mode: objcache.ModeDir | 0o755})
		s.ok(err)
		below := script{t, ctx, c, cl, d.Ino}
		f := below.create("n0", "first")
		below.create("n3", "second")
		s.flush()
		s.ok(cl.Rename(ctx, d.Ino, "n0", dir, "n5", 0))
		end := s.undeleted("n1/n0")
		if err := cl.Persist(ctx, f); err == nil {
			t.Fatal("the old object is deleted")
		}
		end()
		s.rename("n1", "n2")
		below.rename("n3", "n0")
		_, err = cl.Link(ctx, f, dir, "n1")
		s.ok(err)
		for range 3 {
			s.flush()
			time.Sleep(10 * time.Second)
		}
		if p := s.flush(); len(p) > 0 {
			t.Errorf("not persisted: %v", p)
		}
		s.bucketHolds(map[string]string{"n1": "first", "n2/": "", "n2/n0": "second", "n5": "first"})
	})
}

// The same with a file that has lost its last name and is open: its bytes stay, but what else it has to delete goes.
func TestTrash_ADeleteEndsThoughItsFileIsOpenWithoutAName(t *testing.T) {
	scripted(t, 1, func(t *testing.T, ctx context.Context, c *cluster, cl *client.Client, dir objcache.Ino) {
		s := script{t, ctx, c, cl, dir}
		f := s.create("n0", "first")
		s.flush()
		_, err := cl.Open(ctx, f)
		s.ok(err)
		s.rename("n0", "n5")
		end := s.undeleted("n0")
		if err := cl.Persist(ctx, f); err == nil {
			t.Fatal("the old object is deleted")
		}
		end()
		s.ok(cl.Unlink(ctx, dir, "n5"))
		s.create("n0", "second")
		for range 3 {
			s.flush()
			time.Sleep(10 * time.Second)
		}
		s.bucketHolds(map[string]string{"n0": "second", "n5": "first"})
		a, err := cl.Getattr(ctx, f)
		s.ok(err)
		if b, err := readAll(ctx, cl, a); err != nil || string(b) != "first" {
			t.Errorf("the open file reads %q: %v", b, err)
		}
		cl.Release(f)
		time.Sleep(resting)
		s.flush()
		s.bucketHolds(map[string]string{"n0": "second"})
	})
}

// The same with a file that waits for nobody, but is not due for long: whoever has the claimed name now asks it.
func TestTrash_ADeleteEndsWhenTheNextFileOfTheNameIsPersisted(t *testing.T) {
	scripted(t, 1, func(t *testing.T, ctx context.Context, c *cluster, cl *client.Client, dir objcache.Ino) {
		s := script{t, ctx, c, cl, dir}
		f := s.create("n0", "first")
		s.flush()
		s.rename("n0", "n5")
		end := s.undeleted("n0")
		if err := cl.Persist(ctx, f); err == nil {
			t.Fatal("the old object is deleted")
		}
		end()
		next := s.create("n0", "second")
		short, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		s.ok(cl.Persist(short, next))
		s.bucketHolds(map[string]string{"n0": "second", "n5": "first"})
	})
}
