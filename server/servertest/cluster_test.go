//go:build integration

package servertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server"
	"github.com/objcache/objcache/server/client"
	"github.com/objcache/objcache/server/external"
	"github.com/objcache/objcache/server/external/s3"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/test/s3server"
)

// rig is a cluster on a real S3 server.
type rig struct {
	t  *testing.T
	s3 *s3.Store
	cl *Cluster
	c  *client.Client
	b  objcache.Ino // the bucket's directory
}

func newRig(t *testing.T, servers int, change func(*server.Config)) *rig {
	t.Helper()
	gw := s3server.Versitygw(t, "bucket")
	store, err := s3.Open(t.Context(), gw.S3)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, s3: store}
	r.start(servers, server.Bucket{
		DirName: "data", BucketName: gw.S3.Bucket, Endpoint: gw.S3.Endpoint, AccessKey: gw.S3.AccessKey, SecretKey: gw.S3.SecretKey, Region: gw.S3.Region,
	}, change)
	return r
}

func (r *rig) start(servers int, b server.Bucket, change func(*server.Config)) {
	r.cl = Start(r.t, Config{Servers: servers, Buckets: []server.Bucket{b}, Change: change})
	r.c = r.cl.Client()
	r.b = meta.BucketIno("data")
}

// reload starts a fresh cluster on the same bucket.
func (r *rig) reload(servers int) *rig {
	n := &rig{t: r.t, s3: r.s3}
	n.start(servers, r.cl.Configs[0].Buckets[0], nil)
	return n
}

// reloadWith takes the old one down first.
func (r *rig) reloadWith(servers int, change func(*server.Config)) *rig {
	r.cl.stopAll()
	n := &rig{t: r.t, s3: r.s3}
	n.start(servers, r.cl.Configs[0].Buckets[0], change)
	return n
}

func (r *rig) put(key string, body []byte) {
	r.t.Helper()
	if _, err := r.s3.Put(r.t.Context(), key, bytes.NewReader(body), nil, external.Condition{}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) object(key string) []byte {
	r.t.Helper()
	body, _, err := r.s3.Get(r.t.Context(), key, 0, -1, "")
	if err != nil {
		r.t.Fatalf("object %q: %v", key, err)
	}
	b, err := io.ReadAll(body)
	if err := errors.Join(err, body.Close()); err != nil {
		r.t.Fatal(err)
	}
	return b
}

func (r *rig) keys() []string {
	r.t.Helper()
	p, err := r.s3.List(r.t.Context(), external.ListRequest{})
	if err != nil {
		r.t.Fatal(err)
	}
	var ks []string
	for _, o := range p.Objects {
		if !strings.HasPrefix(o.Key, ".objcache/") {
			ks = append(ks, o.Key)
		}
	}
	slices.Sort(ks)
	return ks
}

func (r *rig) lookup(path ...string) objcache.Attr {
	r.t.Helper()
	a := objcache.Attr{Ino: r.b}
	for _, p := range path {
		var err error
		if a, err = r.c.Lookup(r.t.Context(), a.Ino, p); err != nil {
			r.t.Fatalf("lookup %q: %v", p, err)
		}
	}
	return a
}

func (r *rig) mkdir(dir objcache.Ino, name string) objcache.Ino {
	r.t.Helper()
	a, err := r.c.Create(r.t.Context(), dir, name, objcache.NewNode{Mode: objcache.ModeDir | 0o755})
	if err != nil {
		r.t.Fatalf("mkdir %q: %v", name, err)
	}
	return a.Ino
}

func (r *rig) write(dir objcache.Ino, name string, body []byte) objcache.Ino {
	r.t.Helper()
	a, err := r.c.Create(r.t.Context(), dir, name, objcache.NewNode{Mode: objcache.ModeRegular | 0o644})
	if err != nil {
		r.t.Fatalf("create %q: %v", name, err)
	}
	r.overwrite(a.Ino, 0, body)
	return a.Ino
}

func (r *rig) overwrite(ino objcache.Ino, off int64, body []byte) {
	r.t.Helper()
	if err := r.commit(ino, off, body); err != nil {
		r.t.Fatalf("flush: %v", err)
	}
}

func (r *rig) commit(ino objcache.Ino, off int64, body []byte) error {
	_, err := r.c.Flush(r.t.Context(), objcache.Flush{
		Ino: ino, Dirty: []objcache.Range{{Off: off, Len: int64(len(body))}}, Src: at{off, body}, Size: off + int64(len(body)), Mtime: time.Now(),
	})
	return err
}

// at is bytes that begin at an offset of a file.
type at struct {
	off int64
	b   []byte
}

func (a at) ReadAt(p []byte, off int64) (int, error) {
	n := copy(p, a.b[off-a.off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (r *rig) read(ino objcache.Ino) []byte {
	r.t.Helper()
	a, err := r.c.Getattr(r.t.Context(), ino)
	if err != nil {
		r.t.Fatalf("getattr: %v", err)
	}
	p := make([]byte, a.Size)
	n, err := r.c.ReadAt(r.t.Context(), ino, a.Version, p, 0)
	if err != nil || n != len(p) {
		r.t.Fatalf("read of inode %d: %d of %d bytes: %v", ino, n, len(p), err)
	}
	return p
}

func (r *rig) flush() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	var last *rpc.Progress
	if err := r.c.Work(ctx, rpc.WorkRequest_FLUSH, 0, func(p *rpc.Progress) { last = p }); err != nil {
		r.t.Fatalf("flush: %v", err)
	}
	if len(last.GetProblems()) > 0 {
		r.t.Fatalf("flush: %v\nthe bucket holds\n%q", last.GetProblems(), r.keys())
	}
}

func random(n int, seed uint64) []byte {
	b := make([]byte, n)
	c := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	if _, err := c.Read(b); err != nil {
		panic(err)
	}
	return b
}

func (r *rig) names(dir objcache.Ino) []string {
	r.t.Helper()
	var out []string
	for cookie, eof := uint64(0), false; !eof; {
		var es []objcache.DirEntry
		var err error
		if es, eof, err = r.c.Readdir(r.t.Context(), dir, cookie, 100); err != nil {
			r.t.Fatalf("readdir: %v", err)
		}
		for _, e := range es {
			out = append(out, e.Name)
			cookie = e.Cookie
		}
	}
	slices.Sort(out)
	return out
}

func TestCluster_ShowsWhatAnotherClientPut(t *testing.T) {
	for _, servers := range []int{1, 3} {
		t.Run(fmt.Sprint(servers), func(t *testing.T) {
			r := newRig(t, servers, nil)
			big := random(40<<20, 1)
			r.put("a.txt", []byte("hello"))
			r.put("d/e/big", big)
			r.put("d/empty", nil)
			if got := r.names(r.b); !slices.Equal(got, []string{"a.txt", "d"}) {
				t.Fatalf("names %q", got)
			}
			if got := r.read(r.lookup("a.txt").Ino); string(got) != "hello" {
				t.Errorf("a.txt is %q", got)
			}
			if got := r.read(r.lookup("d", "e", "big").Ino); !bytes.Equal(got, big) {
				t.Error("d/e/big differs")
			}
			if a := r.lookup("d", "empty"); a.Size != 0 || !a.IsRegular() {
				t.Errorf("d/empty is %+v", a)
			}
		})
	}
}

func TestCluster_WhatIsWrittenIsReadAndPersisted(t *testing.T) {
	r := newRig(t, 3, nil)
	d := r.mkdir(r.b, "dir")
	bodies := map[string][]byte{"small": []byte("x"), "inline": random(4000, 2), "medium": random(300<<10, 3), "large": random(50<<20, 4), "none": nil}
	inos := map[string]objcache.Ino{}
	for n, b := range bodies {
		inos[n] = r.write(d, n, b)
	}
	for n, b := range bodies {
		if !bytes.Equal(r.read(inos[n]), b) {
			t.Errorf("%s differs before it is persisted", n)
		}
	}
	r.flush()
	for n, b := range bodies {
		if !bytes.Equal(r.object("dir/"+n), b) {
			t.Errorf("object of %s differs", n)
		}
		if !bytes.Equal(r.read(inos[n]), b) {
			t.Errorf("%s differs after it is persisted", n)
		}
	}
	fresh := r.reload(2)
	for n, b := range bodies {
		if !bytes.Equal(fresh.read(fresh.lookup("dir", n).Ino), b) {
			t.Errorf("%s differs in a fresh cluster", n)
		}
	}
}

func TestCluster_RestartOfAllKeepsWhatWasFlushed(t *testing.T) {
	r := newRig(t, 3, nil)
	d := r.mkdir(r.b, "dir")
	body := random(20<<20, 5)
	ino := r.write(d, "f", body)
	for i := range r.cl.Servers {
		r.cl.Down(i)
	}
	for i := range r.cl.Servers {
		r.cl.Up(i)
	}
	if !bytes.Equal(r.read(ino), body) {
		t.Error("bytes differ after a restart")
	}
	r.flush()
	if !bytes.Equal(r.object("dir/f"), body) {
		t.Error("object differs after a restart")
	}
}

func TestPersist_KeepsTheOrderOfOneKey(t *testing.T) {
	ctx := context.Background()
	old, young := random(5000, 6), random(6000, 7)
	t.Run("mv f g; write f", func(t *testing.T) {
		r := newRig(t, 3, nil)
		r.write(r.b, "f", old)
		r.flush()
		if err := r.c.Rename(ctx, r.b, "f", r.b, "g", 0); err != nil {
			t.Fatal(err)
		}
		r.write(r.b, "f", young)
		r.flush()
		if !bytes.Equal(r.object("g"), old) || !bytes.Equal(r.object("f"), young) {
			t.Error("objects are mixed up")
		}
	})
	t.Run("rm k; create k", func(t *testing.T) {
		r := newRig(t, 3, nil)
		r.write(r.b, "k", old)
		r.flush()
		if err := r.c.Unlink(ctx, r.b, "k"); err != nil {
			t.Fatal(err)
		}
		r.write(r.b, "k", young)
		r.flush()
		if got := r.object("k"); !bytes.Equal(got, young) {
			t.Error("the object is not the new one")
		}
	})
	t.Run("mv d e; mkdir d; create d/x", func(t *testing.T) {
		r := newRig(t, 3, nil)
		d := r.mkdir(r.b, "d")
		r.write(d, "x", old)
		r.write(d, "y", old)
		r.flush()
		if err := r.c.Rename(ctx, r.b, "d", r.b, "e", 0); err != nil {
			t.Fatal(err)
		}
		r.write(r.mkdir(r.b, "d"), "x", young)
		r.flush()
		if got := r.keys(); !slices.Equal(got, []string{"d/", "d/x", "e/", "e/x", "e/y"}) {
			t.Errorf("keys %q", got)
		}
		if !bytes.Equal(r.object("e/x"), old) || !bytes.Equal(r.object("d/x"), young) {
			t.Error("objects are mixed up")
		}
	})
	t.Run("rm -r d; mkdir d; create d/x", func(t *testing.T) {
		r := newRig(t, 3, nil)
		d := r.mkdir(r.b, "d")
		r.write(d, "x", old)
		r.write(d, "z", old)
		r.flush()
		for _, n := range []string{"x", "z"} {
			if err := r.c.Unlink(ctx, d, n); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.c.Rmdir(ctx, r.b, "d"); err != nil {
			t.Fatal(err)
		}
		r.write(r.mkdir(r.b, "d"), "x", young)
		r.flush()
		if got := r.keys(); !slices.Equal(got, []string{"d/", "d/x"}) {
			t.Errorf("keys %q", got)
		}
		if !bytes.Equal(r.object("d/x"), young) {
			t.Error("the object is not the new one")
		}
	})
}

func TestTruncate_ShrinkThenGrowReadsZeros(t *testing.T) {
	ctx := context.Background()
	r := newRig(t, 3, nil)
	r.put("f", random(20<<20, 12))
	ino := r.lookup("f").Ino
	for _, size := range []int64{17<<20 + 5, 100, 18 << 20} {
		if _, err := r.c.Setattr(ctx, ino, objcache.SetAttr{Size: &size}); err != nil {
			t.Fatal(err)
		}
	}
	want := make([]byte, 18<<20)
	copy(want, random(20<<20, 12)[:100])
	if !bytes.Equal(r.read(ino), want) {
		t.Error("bytes differ after shrinking and growing")
	}
	r.flush()
	if !bytes.Equal(r.object("f"), want) {
		t.Error("the object differs after shrinking and growing")
	}
}
