//go:build integration

package servertest

import (
	"fmt"
	"testing"

	"github.com/objcache/objcache"
)

// Files of a small directory live in its group, and Create itself opens them.
func TestCreate_OpenKeepsAFileThatSomebodyElseUnlinksUntilItsRelease(t *testing.T) {
	r := newRig(t, 3, nil)
	other := r.cl.Client()
	ctx := t.Context()
	for i := range 10 {
		name := fmt.Sprint("f", i)
		a, err := r.c.Create(ctx, r.b, name, objcache.NewNode{Mode: objcache.ModeRegular | 0o644, Open: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := other.Unlink(ctx, r.b, name); err != nil {
			t.Fatal(err)
		}
		if _, err := r.c.Getattr(ctx, a.Ino); err != nil {
			t.Errorf("%s: open and unlinked: %v", name, err)
		}
		r.overwrite(a.Ino, 0, []byte("still here"))
		p := make([]byte, 10)
		now, err := r.c.Getattr(ctx, a.Ino)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.c.ReadAt(ctx, a.Ino, now.Version, p, 0); err != nil || string(p) != "still here" {
			t.Errorf("%s: read %q, %v", name, p, err)
		}
		r.c.Release(a.Ino)
	}
}
