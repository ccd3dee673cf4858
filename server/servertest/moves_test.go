//go:build integration

package servertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server"
	"github.com/objcache/objcache/server/external"
)

// tree is what a bucket should hold: bodies by key; directories end with a slash.
type tree map[string]string

func (tr tree) put(key, body string) {
	for d := path.Dir(key); d != "."; d = path.Dir(d) {
		tr[d+"/"] = ""
	}
	tr[key] = body
}

func (tr tree) move(from, to string) {
	for k, body := range maps.Clone(tr) {
		if k == from || strings.HasPrefix(k, from+"/") {
			delete(tr, k)
			tr[to+k[len(from):]] = body
		}
	}
}

func (r *rig) dir(p string) (objcache.Ino, string) {
	r.t.Helper()
	d, n := path.Split(p)
	if d == "" {
		return r.b, n
	}
	return r.lookup(strings.Split(strings.TrimSuffix(d, "/"), "/")...).Ino, n
}

// do carries out "mkdir a", "mv a b", "swap a b", "ln a b", "rm a" or "write a" in the mount and in the tree.
func (r *rig) do(tr tree, ops ...string) {
	r.t.Helper()
	for _, op := range ops {
		w := strings.Fields(op)
		d, n := r.dir(w[1])
		rename := func(flags uint32) {
			e, m := r.dir(w[2])
			if err := r.c.Rename(r.t.Context(), d, n, e, m, flags); err != nil {
				r.t.Fatalf("%s: %v", op, err)
			}
		}
		switch w[0] {
		case "mkdir":
			r.mkdir(d, n)
			tr[w[1]+"/"] = ""
		case "write":
			body := string(random(3000+len(tr), uint64(len(tr))))
			r.write(d, n, []byte(body))
			tr.put(w[1], body)
		case "rm":
			if err := r.c.Unlink(r.t.Context(), d, n); err != nil {
				r.t.Fatalf("%s: %v", op, err)
			}
			delete(tr, w[1])
		case "mv":
			rename(0)
			tr.move(w[1], w[2])
		case "swap":
			rename(2)
			tr.move(w[1], "\x00")
			tr.move(w[2], w[1])
			tr.move("\x00", w[2])
		case "ln":
			e, m := r.dir(w[2])
			if _, err := r.c.Link(r.t.Context(), r.lookup(strings.Split(w[1], "/")...).Ino, e, m); err != nil {
				r.t.Fatalf("%s: %v", op, err)
			}
			tr[w[2]] = tr[w[1]]
		}
	}
}

// sameAs compares the bucket and what clients see with the tree.
func (r *rig) sameAs(tr tree) {
	r.t.Helper()
	want := slices.Sorted(maps.Keys(tr))
	if got := r.keys(); !slices.Equal(got, want) {
		r.t.Fatalf("the bucket holds\n%q, should be\n%q", got, want)
	}
	page, err := r.s3.List(r.t.Context(), external.ListRequest{Prefix: ".objcache/moving/"})
	if err != nil || len(page.Objects) > 0 {
		r.t.Errorf("left on a detour: %v, %v", page.Objects, err)
	}
	for k, body := range tr {
		if string(r.object(k)) != body {
			r.t.Errorf("object %q differs", k)
		}
	}
	r.shows(tr)
}

func (r *rig) shows(tr tree) {
	r.t.Helper()
	for k, body := range tr {
		a := r.lookup(strings.Split(strings.TrimSuffix(k, "/"), "/")...)
		if !strings.HasSuffix(k, "/") {
			if a.Mode&objcache.ModeMask == objcache.ModeRegular && string(r.read(a.Ino)) != body {
				r.t.Errorf("file %q differs", k)
			}
			continue
		}
		var below []string
		for o := range tr {
			if rest, ok := strings.CutPrefix(o, k); ok && rest != "" && !strings.Contains(strings.TrimSuffix(rest, "/"), "/") {
				below = append(below, strings.TrimSuffix(rest, "/"))
			}
		}
		slices.Sort(below)
		if got := r.names(a.Ino); !slices.Equal(got, below) {
			r.t.Errorf("directory %q lists %q, should be %q", k, got, below)
		}
	}
}

// plant fills a part of the bucket with some directories, one file being of two chunks.
func (r *rig) plant(tr tree, top string) {
	r.t.Helper()
	mine := tree{}
	for _, d := range []string{"a", "b", "c"} {
		for _, f := range []string{"f", "s/g", "s/t/h"} {
			mine.put(top+"/"+d+"/"+f, top+d+" "+f)
		}
	}
	if top == "swap" {
		mine.put(top+"/a/big", string(random(objcache.ChunkSize+5000, 9)))
	}
	for k, body := range mine {
		r.put(k, []byte(body))
	}
	maps.Copy(tr, mine)
}

// dress gives what was planted attributes that only tables keep.
func (r *rig) dress(tr tree, top string) {
	r.t.Helper()
	mode := uint32(0o600)
	if _, err := r.c.Setattr(r.t.Context(), r.lookup(top, "a", "s", "g").Ino, objcache.SetAttr{Mode: &mode}); err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.c.Create(r.t.Context(), r.lookup(top, "b").Ino, "link", objcache.NewNode{Mode: objcache.ModeSymlink | 0o777, Target: "to/a"}); err != nil {
		r.t.Fatal(err)
	}
	tr[top+"/b/link"] = "to/a"
}

func plain(t *testing.T, tr tree, tops ...string) *rig {
	t.Helper()
	r := newRig(t, 3, func(c *server.Config) {
		c.FlushInterval, c.ExternalTTL = server.Duration(time.Hour), server.Duration(30*time.Millisecond)
	})
	for _, top := range tops { // all before the first look, which stays true for a while
		r.plant(tr, top)
	}
	for _, top := range tops {
		r.dress(tr, top)
	}
	r.flush()
	return r
}

var circles = map[string][]string{
	"swap":                              {"mv a t", "mv b a", "mv t b"},
	"exchange":                          {"swap a b"},
	"three-in-a-circle":                 {"mv a t", "mv b a", "mv c b", "mv t c"},
	"below-its-own-old-name":            {"mv a t", "mkdir a", "mv t a/sub"},
	"below-its-own-old-name-deep":       {"mv a t", "mkdir a", "mkdir a/x", "mv t a/x/a"},
	"a-child-and-its-parent":            {"mv a/s t", "mv a t/a"},
	"a-child-and-its-parent-s-old-name": {"mv a/s t", "mv a t/a", "mv t a"},
	"two-and-new-files-on-the-way":      {"swap a b", "write a/new", "mv a/s b/s2", "write b/s2/new", "ln a/f b/ln"},
	"two-pairs-inside-each-other":       {"swap a/s b/s", "swap a b", "swap a/s/t b/s/t"},
	"a-file-and-a-directory":            {"swap a/f b", "swap c/s a"},
	"there-and-back":                    {"mv a t", "mv t a"},
	"both-children-of-each-other":       {"mv a b/a", "mv b/a/s s", "mv b s/b", "mv s/b/a a"},
}

func TestMoves_CirclesOfDirectoriesReachTheBucket(t *testing.T) {
	tr := tree{}
	names := slices.Sorted(maps.Keys(circles))
	r := plain(t, tr, names...)
	for _, name := range names {
		for _, op := range circles[name] {
			w := strings.Split(op, " ")
			for i := 1; i < len(w); i++ {
				w[i] = name + "/" + w[i]
			}
			r.do(tr, strings.Join(w, " "))
		}
	}
	r.shows(tr)
	r.flush()
	r.sameAs(tr)
	r.reload(2).sameAs(tr)
}

func TestMoves_OneOfACircleMakesADetour(t *testing.T) {
	tr := tree{}
	r := plain(t, tr, "p")
	r.do(tr, "mv p/a p/t", "mv p/b p/a", "mv p/c p/b", "mv p/t p/c")
	r.flush()
	r.sameAs(tr)
	if n := r.cl.Logged("makes a detour"); n != 1 {
		t.Errorf("%d detours for one circle", n)
	}
}

func TestMoves_ARestartOnTheDetourGoesOn(t *testing.T) {
	tr := tree{}
	r := plain(t, tr, "p")
	for i := range 15 {
		r.do(tr, fmt.Sprintf("write p/a/s/%d", i), fmt.Sprintf("write p/b/s/%d", i))
	}
	r.flush()
	r.do(tr, "mv p/a p/t", "mv p/b p/a", "mv p/t p/b")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- r.c.Work(ctx, rpc.WorkRequest_FLUSH, 0, func(*rpc.Progress) {}) }()
	eventually(t, func() bool {
		page, err := r.s3.List(t.Context(), external.ListRequest{Prefix: ".objcache/moving/"})
		return err == nil && len(page.Objects) > 2
	})
	for i := range 3 {
		r.cl.Down(i)
	}
	for i := range 3 {
		r.cl.Up(i)
	}
	cancel()
	<-ended
	r.shows(tr)
	r.flush()
	r.sameAs(tr)
	r.reload(1).sameAs(tr)
}

func TestMoves_WhatIsBelowStaysVisibleBeforeItArrives(t *testing.T) {
	tr := tree{}
	r := plain(t, tr, "p")
	r.put("p/a/s/unseen/f", []byte("x")) // a directory that nobody has looked into yet
	tr.put("p/a/s/unseen/f", "x")
	eventually(t, func() bool { return slices.Contains(r.names(r.lookup("p", "a", "s").Ino), "unseen") })
	r.do(tr, "mv p/a p/t", "mv p/b p/a", "mv p/t p/b", "mv p/c p/d")
	tick := time.NewTicker(40 * time.Millisecond)
	defer tick.Stop()
	for range 4 { // names are looked for again after each TTL
		r.shows(tr)
		<-tick.C
	}
	r.flush()
	r.sameAs(tr)
}

func TestMoves_FilesAreNotInTheWay(t *testing.T) {
	tr := tree{}
	r := plain(t, tr, "orphan", "links", "replaced")
	r.do(tr, "ln links/a/f links/x", "ln links/a/f links/y")
	r.flush()

	// A file that is open and has no name any more.
	ino := r.lookup("orphan", "a", "f").Ino
	if _, err := r.c.Open(t.Context(), ino); err != nil {
		t.Fatal(err)
	}
	r.do(tr, "rm orphan/a/f", "swap orphan/a orphan/b", "write orphan/b/f")
	// Names of one file that go round.
	r.do(tr, "mv links/x links/t", "mv links/y links/x", "mv links/c/f links/y", "mv links/t links/z", "mv links/a links/c/a2", "mv links/b links/a")
	// A file that was replaced after its directory had moved.
	r.do(tr, "mv replaced/a replaced/a2", "rm replaced/a2/f", "write replaced/a2/f", "mv replaced/a2/f replaced/a2/f2", "write replaced/a2/f")
	r.flush()
	r.sameAs(tr)
	if got := string(r.read(ino)); got != "orphana f" {
		t.Errorf("the open file reads %q", got)
	}
	r.c.Release(ino)
}

func TestMoves_AnotherFileOfTheSameBytesKeepsItsObject(t *testing.T) {
	tr := tree{}
	r := plain(t, tr, "p")
	// Each takes the place of one of the same bytes, and then the directory moves before the first is deleted.
	for i := range 4 {
		r.do(tr, "rm p/a/f")
		d, n := r.dir("p/a/f")
		r.write(d, n, []byte("pa f"))
		tr.put("p/a/f", "pa f")
		if i%2 == 0 {
			if err := r.c.Persist(t.Context(), r.lookup("p", "a", "f").Ino); err != nil && !errors.Is(err, objcache.Conflict) {
				t.Fatal(err)
			}
		}
		r.do(tr, "mv p/a p/t", "mv p/b p/a", "mv p/t p/b", "swap p/a p/b")
	}
	r.flush()
	r.sameAs(tr)
}

func TestMoves_AnOverwrittenObjectGoesWithTheFileThatOverwroteIt(t *testing.T) {
	tr := tree{}
	r := plain(t, tr, "p")
	r.do(tr, "mv p/a/f p/a/y", "write p/a/f")
	young := r.lookup("p", "a", "f").Ino
	persist := func() {
		if err := r.c.Persist(t.Context(), young); err != nil && !errors.Is(err, objcache.Conflict) {
			t.Fatal(err)
		}
	}
	eventually(t, func() bool { // the old one goes first
		persist()
		return string(r.object("p/a/f")) == tr["p/a/f"]
	})
	// Now the young one leaves the key, while the old one still owes for it.
	r.do(tr, "mv p/a p/d")
	persist()
	r.flush()
	r.sameAs(tr)
}
