//go:build integration

package servertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/client"
)

func TestLinks_AreOneFileWhileTheClusterLivesAndObjectsOfTheirOwn(t *testing.T) {
	r := newRig(t, 3, nil)
	d := r.mkdir(r.b, "d")
	body := random(20_000, 1)
	ino := r.write(d, "one", body)
	if _, err := r.c.Link(t.Context(), ino, r.b, "two"); err != nil {
		t.Fatal(err)
	}
	again := random(20_000, 2)
	r.overwrite(ino, 0, again)
	if one, two := r.lookup("d", "one"), r.lookup("two"); one.Ino != two.Ino || one.Nlink != 2 {
		t.Errorf("inodes %d and %d, %d links", one.Ino, two.Ino, one.Nlink)
	}
	r.flush()
	for _, key := range []string{"d/one", "two"} {
		same(t, key, r.object(key), again)
	}
	n := r.reloadWith(3, nil)
	one, two := n.lookup("d", "one"), n.lookup("two")
	if one.Ino == two.Ino {
		t.Error("one inode after a reload: say so in docs/guarantees.md")
	}
	same(t, "d/one", n.read(one.Ino), again)
	same(t, "two", n.read(two.Ino), again)
}

func TestInodeNumbers_AreStableAndNeverUsedAgain(t *testing.T) {
	r := newRig(t, 3, nil)
	seen := map[objcache.Ino]string{}
	create := func(name string) objcache.Ino {
		ino := r.write(r.b, name, []byte(name))
		if old, ok := seen[ino]; ok {
			t.Errorf("%s has the number of %s", name, old)
		}
		seen[ino] = name
		return ino
	}
	kept := create("kept")
	for round := range 3 {
		for i := range 20 {
			name := fmt.Sprintf("f%d-%d", round, i)
			create(name)
			if err := r.c.Unlink(t.Context(), r.b, name); err != nil {
				t.Fatal(err)
			}
		}
		r.flush()
		for i := range r.cl.Servers {
			r.cl.Down(i)
		}
		for i := range r.cl.Servers {
			r.cl.Up(i)
		}
		if ino := r.lookup("kept").Ino; ino != kept {
			t.Errorf("the number changed from %d to %d", kept, ino)
		}
	}
}

// Two clients move two directories below each other at the same time: one of them must fail, or both would be out of reach.
func TestRename_OfTwoDirectoriesBelowEachOtherOneSucceeds(t *testing.T) {
	r := newRig(t, 3, nil)
	other := r.cl.Client()
	for i := range 25 {
		x, y := fmt.Sprint("x", i), fmt.Sprint("y", i)
		xi, yi := r.mkdir(r.b, x), r.mkdir(r.b, y)
		var errs [2]error
		var both sync.WaitGroup
		both.Go(func() { errs[0] = r.c.Rename(t.Context(), r.b, x, yi, x, 0) })
		both.Go(func() { errs[1] = other.Rename(t.Context(), r.b, y, xi, y, 0) })
		both.Wait()
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Fatalf("%s: %v, %s: %v", x, errs[0], y, errs[1])
		}
		for _, err := range errs {
			if err != nil && !errors.Is(err, objcache.Invalid) {
				t.Errorf("refused with %v, should be EINVAL", err)
			}
		}
		if errs[0] == nil {
			r.lookup(y, x)
		} else {
			r.lookup(x, y)
		}
	}
}

func TestTimeout_AnOperationThatFindsNoServerFails(t *testing.T) {
	r := newRig(t, 2, nil)
	ino := r.write(r.b, "f", random(50_000, 1))
	a, err := r.c.Getattr(t.Context(), ino)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.Open(t.Context(), client.Config{
		Servers: []string{r.cl.Configs[0].Listen}, Timeout: 500 * time.Millisecond, Logger: Logger(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range r.cl.Servers {
		r.cl.Down(i)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	p := make([]byte, 50_000)
	if _, err := c.ReadAt(ctx, ino, a.Version, p, 0); !errors.Is(err, objcache.IO) || ctx.Err() != nil {
		t.Errorf("read: %v", err)
	}
	if _, err := c.Lookup(ctx, r.b, "f"); !errors.Is(err, objcache.IO) || ctx.Err() != nil {
		t.Errorf("lookup: %v", err)
	}
	for i := range r.cl.Servers {
		r.cl.Up(i)
	}
	if n, err := c.ReadAt(ctx, ino, a.Version, p, 0); err != nil || n != len(p) || !bytes.Equal(p, random(50_000, 1)) {
		t.Errorf("after the servers are back: %d bytes, %v", n, err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
