//go:build integration

package servertest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/external"
	"github.com/objcache/objcache/test/faultproxy"
	"github.com/objcache/objcache/test/wait"
)

// deleteBelow is what another client does that deletes a directory.
func (r *rig) deleteBelow(prefix string) {
	r.t.Helper()
	for {
		p, err := r.s3.List(r.t.Context(), external.ListRequest{Prefix: prefix})
		if err != nil {
			r.t.Fatal(err)
		}
		for _, o := range p.Objects {
			if err := r.s3.Delete(r.t.Context(), o.Key); err != nil {
				r.t.Fatal(err)
			}
		}
		if p.Next == "" {
			return
		}
	}
}

func (r *rig) absent(dir objcache.Ino, name string) bool {
	_, err := r.c.Lookup(r.t.Context(), dir, name)
	return errors.Is(err, objcache.NotExist)
}

func TestVanish_ADirectoryThatAnotherClientDeletedGoesWithAllBelow(t *testing.T) {
	f := newFaulty(t, 3, short)
	f.put("d/e/g/f", []byte("x"))
	f.put("d/f", []byte("x"))
	f.put("marked/", nil)
	own := f.mkdir(f.b, "own")
	f.write(own, "f", []byte("x"))
	f.mkdir(own, "empty")
	f.flush()
	d := f.lookup("d")
	f.lookup("d", "e", "g", "f")
	f.names(f.lookup("d", "e").Ino)
	f.names(f.lookup("marked").Ino)
	for _, n := range []string{"d", "marked", "own"} {
		f.deleteBelow(n + "/")
		wait.Until(t, 10*time.Second, n+" is gone", func() bool { return f.absent(f.b, n) })
	}
	if got := f.names(f.b); len(got) != 0 {
		t.Errorf("names %q", got)
	}
	for what, err := range map[string]error{
		"getattr": second(f.c.Getattr(t.Context(), d.Ino)),
		"create":  second(f.c.Create(t.Context(), d.Ino, "x", objcache.NewNode{Mode: objcache.ModeRegular | 0o644})),
	} {
		if k := objcache.KindOf(err); k != objcache.Stale && k != objcache.NotExist {
			t.Errorf("%s in a directory that is gone: %v", what, err)
		}
	}
	// The name is free, for others and for us.
	f.put("d/again", []byte("y"))
	wait.Until(t, 10*time.Second, "d is back", func() bool { return !f.absent(f.b, "d") })
	if a := f.lookup("d"); a.Ino == d.Ino {
		t.Error("the inode number is used again")
	}
	if got := f.names(f.lookup("d").Ino); !slices.Equal(got, []string{"again"}) {
		t.Errorf("names %q", got)
	}
	f.write(f.mkdir(f.b, "own"), "new", []byte("z"))
	f.flush()
	if got := f.keys(); !slices.Equal(got, []string{"d/again", "own/", "own/new"}) {
		t.Errorf("keys %q", got)
	}
}

func second[T any](_ T, err error) error { return err }

func TestVanish_ADirectoryWithSomethingOfOursStays(t *testing.T) {
	f := newFaulty(t, 3, short)
	ctx := t.Context()
	for _, d := range []string{"dirty", "file", "sub", "changed"} {
		f.put(d+"/f", []byte("x"))
	}
	for _, a := range f.entries(f.b) {
		f.names(a.Ino)
	}
	f.write(f.lookup("file").Ino, "mine", []byte("y"))
	f.mkdir(f.lookup("sub").Ino, "mine")
	f.overwrite(f.lookup("dirty", "f").Ino, 0, []byte("mine"))
	mode := uint32(0o700)
	if _, err := f.c.Setattr(ctx, f.lookup("changed").Ino, objcache.SetAttr{Mode: &mode}); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"dirty", "file", "sub", "changed"} {
		f.deleteBelow(d + "/")
	}
	for range 3 {
		if err := f.refresh(); err != nil {
			t.Fatal(err)
		}
	}
	if got := f.names(f.b); !slices.Equal(got, []string{"changed", "dirty", "file", "sub"}) {
		t.Fatalf("names %q", got)
	}
	f.flush()
	if got := f.keys(); !slices.Contains(got, "dirty/f") || !slices.Contains(got, "file/mine") || !slices.Contains(got, "sub/mine/") {
		t.Errorf("keys %q", got)
	}
}

func TestVanish_CreatesMeanwhileAreKeptOrRefused(t *testing.T) {
	f := newFaulty(t, 3, short)
	for i := range 20 {
		d := fmt.Sprintf("d%d", i)
		f.put(d+"/f", []byte("x"))
		if err := f.refresh(); err != nil {
			t.Fatal(err)
		}
		ino := f.lookup(d).Ino
		f.names(ino)
		f.deleteBelow(d + "/")
		var made error
		var wg sync.WaitGroup
		wg.Go(func() {
			_, made = f.c.Create(t.Context(), ino, "new", objcache.NewNode{Mode: objcache.ModeRegular | 0o644})
		})
		if err := f.refresh(); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		k := objcache.KindOf(made)
		if _, err := f.c.Lookup(t.Context(), f.b, d); made == nil && err != nil {
			t.Errorf("%s went although a file was made in it: %v", d, err)
		} else if made != nil && k != objcache.NotExist && k != objcache.Stale {
			t.Errorf("create in %s: %v", d, made)
		}
	}
}

func TestNames_OfALargeDirectoryAreAskedForWhileItIsListed(t *testing.T) {
	f := newFaulty(t, 3, short)
	var wg sync.WaitGroup
	room := make(chan struct{}, 16)
	for i := range 1100 {
		room <- struct{}{}
		wg.Go(func() { f.put(fmt.Sprintf("big/f%04d", i), nil); <-room })
	}
	wg.Wait()
	big := f.lookup("big").Ino
	if n := len(f.names(big)); n != 1100 {
		t.Fatalf("%d names", n)
	}
	f.put("big/new", []byte("x"))
	f.put("big/sub/new", []byte("x"))
	end := f.fault(faultproxy.Rule{Op: external.OpList, Key: "^big/$", Fault: faultproxy.Fault{BlackHole: true}})
	defer end()
	for _, n := range []string{"new", "sub"} {
		wait.Until(t, 5*time.Second, n, func() bool { return !f.absent(big, n) })
	}
	if !f.absent(big, "nothing") {
		t.Error("a name that is nowhere was found")
	}
	asked := f.heads()
	for range 20 {
		f.lookup("big", "f0001")
	}
	if n := f.heads() - asked; n != 0 {
		t.Errorf("%d HEAD for a name that is known", n)
	}
}
