//go:build integration

package servertest

import (
	"context"
	"testing"

	"github.com/objcache/objcache"
)

// TestRename_IsSeenWholeOrNotAtAll lists a directory all the time while another client renames in it: a listing is one read of one group, so it must
// show each file under exactly one name.
func TestRename_IsSeenWholeOrNotAtAll(t *testing.T) {
	r := newRig(t, 3, nil)
	r.write(r.b, "a", []byte("x"))
	other := r.cl.Client()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		names := [2]string{"a", "b"}
		var err error
		for i := 0; ctx.Err() == nil && err == nil; i++ {
			err = other.Rename(t.Context(), r.b, names[i%2], r.b, names[1-i%2], 0)
		}
		done <- err
	}()
	listings, moved, last := 0, 0, "a"
	for ; moved < 200 && !t.Failed(); listings++ {
		got := r.names(r.b)
		if len(got) != 1 {
			t.Errorf("listing %d shows %q", listings, got)
			break
		}
		if got[0] != last {
			moved, last = moved+1, got[0]
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("rename: %v", err)
	}
	t.Logf("%d listings saw %d renames", listings, moved)
}

// TestRename_OverDirectoriesNeverLosesTheFile moves a file to and fro between directories, over a name that is taken, while another client renames
// what stands there: whatever a rename answers, the file has exactly one name afterwards.
func TestRename_OverDirectoriesNeverLosesTheFile(t *testing.T) {
	r := newRig(t, 3, nil)
	from, to := r.mkdir(r.b, "from"), r.mkdir(r.b, "to")
	ino := r.write(from, "f", []byte("x"))
	other := r.cl.Client()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		var err error
		for ctx.Err() == nil && err == nil {
			if _, err = other.Create(t.Context(), to, "f", objcache.NewNode{Mode: objcache.ModeDir | 0o755}); err == nil {
				err = other.Rmdir(t.Context(), to, "f")
			}
			if objcache.KindOf(err) == objcache.Exist || objcache.KindOf(err) == objcache.NotDir {
				err = nil // the file stands there
			}
		}
		done <- err
	}()
	moved, refused := 0, 0
	for i := 0; i < 1000 && (moved < 5 || refused < 5); i++ {
		err := r.c.Rename(t.Context(), from, "f", to, "f", 0)
		in, out := r.has(from, ino), r.has(to, ino)
		switch {
		case err == nil && (in || !out), err != nil && (!in || out):
			t.Fatalf("rename %d answered %v; the old directory has the file: %v, the new one: %v", i, err, in, out)
		case err != nil && objcache.KindOf(err) != objcache.IsDir:
			t.Fatalf("rename %d: %v", i, err)
		case err != nil:
			refused++
		default:
			if moved++; r.c.Rename(t.Context(), to, "f", from, "f", 0) != nil {
				t.Fatal("back again")
			}
		}
	}
	stop()
	t.Logf("%d moved, %d refused", moved, refused)
	if err := <-done; err != nil {
		t.Errorf("mkdir and rmdir: %v", err)
	}
}

// has reports whether one of a directory's names is the inode's.
func (r *rig) has(dir, ino objcache.Ino) bool {
	for _, a := range r.entries(dir) {
		if a.Ino == ino {
			return true
		}
	}
	return false
}
