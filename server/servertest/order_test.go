//go:build integration

package servertest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/objcache/objcache"
)

func TestPersist_SwappedFilesReachEachOthersKeys(t *testing.T) {
	a, b, c := random(5000, 1), random(70000, 2), random(objcache.ChunkSize+5000, 3)
	t.Run("exchange", func(t *testing.T) {
		r := newRig(t, 3, nil)
		r.write(r.b, "a", a)
		r.write(r.b, "b", b)
		r.flush()
		if err := r.c.Rename(t.Context(), r.b, "a", r.b, "b", 2); err != nil {
			t.Fatal(err)
		}
		r.flush()
		if got := r.keys(); !slices.Equal(got, []string{"a", "b"}) || !bytes.Equal(r.object("a"), b) || !bytes.Equal(r.object("b"), a) {
			t.Errorf("keys %q, or objects that are not swapped", got)
		}
		if !bytes.Equal(r.read(r.lookup("a").Ino), b) || !bytes.Equal(r.read(r.lookup("b").Ino), a) {
			t.Error("files are not swapped")
		}
	})
	t.Run("three in a circle", func(t *testing.T) {
		r := newRig(t, 3, nil)
		for n, body := range map[string][]byte{"a": a, "b": b, "c": c} {
			r.write(r.b, n, body)
		}
		r.flush()
		for _, m := range [][2]string{{"a", "t"}, {"b", "a"}, {"c", "b"}, {"t", "c"}} {
			if err := r.c.Rename(t.Context(), r.b, m[0], r.b, m[1], 0); err != nil {
				t.Fatal(err)
			}
		}
		r.flush()
		if got := r.keys(); !slices.Equal(got, []string{"a", "b", "c"}) {
			t.Errorf("keys %q", got)
		}
		for n, body := range map[string][]byte{"a": b, "b": c, "c": a} {
			if !bytes.Equal(r.object(n), body) || !bytes.Equal(r.read(r.lookup(n).Ino), body) {
				t.Errorf("%s differs", n)
			}
		}
	})
}

func TestPersist_AFileAndADirectoryChangeNames(t *testing.T) {
	r := newRig(t, 3, nil)
	body := random(9000, 4)
	r.write(r.b, "x", body)
	r.write(r.b, "y", body)
	r.flush()
	if err := r.c.Unlink(t.Context(), r.b, "x"); err != nil {
		t.Fatal(err)
	}
	r.write(r.mkdir(r.b, "x"), "in", body)
	// y moves below a directory of its own old name.
	if err := r.c.Rename(t.Context(), r.b, "y", r.b, "t", 0); err != nil {
		t.Fatal(err)
	}
	if err := r.c.Rename(t.Context(), r.b, "t", r.mkdir(r.b, "y"), "in", 0); err != nil {
		t.Fatal(err)
	}
	r.flush()
	if got := r.keys(); !slices.Equal(got, []string{"x/", "x/in", "y/", "y/in"}) || !bytes.Equal(r.object("x/in"), body) || !bytes.Equal(r.object("y/in"), body) {
		t.Errorf("keys %q, or objects that differ", got)
	}
}

func TestRead_AnUploadNeverBringsOldBytesBack(t *testing.T) {
	r := newRig(t, 3, nil)
	body := random(objcache.ChunkSize+300<<10, 5)
	r.put("f", body)
	ino := r.lookup("f").Ino
	if !bytes.Equal(r.read(ino), body) {
		t.Fatal("bytes differ before the write")
	}
	for round := range 3 {
		piece := random(70000, uint64(10+round))
		off := int64(100_000 * (round + 1))
		r.overwrite(ino, off, piece)
		copy(body[off:], piece)
		if !bytes.Equal(r.read(ino), body) {
			t.Fatal("bytes differ after the write")
		}
		r.flush()
		if !bytes.Equal(r.object("f"), body) || !bytes.Equal(r.read(ino), body) {
			t.Fatalf("round %d: bytes differ after the upload", round)
		}
	}
}

func TestUnlink_AnOpenFileIsReadUntilItsRelease(t *testing.T) {
	r := newRig(t, 2, nil)
	body := random(50000, 6)
	ino := r.write(r.b, "f", body)
	r.flush()
	if _, err := r.c.Open(t.Context(), ino); err != nil {
		t.Fatal(err)
	}
	if err := r.c.Unlink(t.Context(), r.b, "f"); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(r.read(ino), body) {
		t.Error("bytes of an open file without a name differ")
	}
	r.overwrite(ino, 10, []byte("new"))
	copy(body[10:], "new")
	if !bytes.Equal(r.read(ino), body) {
		t.Error("a write to it is not read back")
	}
	r.c.Release(ino)
	eventually(t, func() bool {
		_, err := r.c.Getattr(t.Context(), ino)
		return errors.Is(err, objcache.Stale)
	})
	eventually(t, func() bool { return len(r.keys()) == 0 })
}

func TestRename_TwoDirectoriesCannotMoveIntoEachOther(t *testing.T) {
	r := newRig(t, 3, nil)
	other := r.cl.Client()
	for range 10 {
		a, b := r.mkdir(r.b, "a"), r.mkdir(r.b, "b")
		ax, bx := r.mkdir(a, "x"), r.mkdir(b, "x")
		var errs [2]error
		var wg sync.WaitGroup
		wg.Go(func() { errs[0] = r.c.Rename(t.Context(), r.b, "a", bx, "a", 0) })
		wg.Go(func() { errs[1] = other.Rename(t.Context(), r.b, "b", ax, "b", 0) })
		wg.Wait()
		if errs[0] == nil == (errs[1] == nil) {
			t.Fatalf("one must succeed and one must not: %v, %v", errs[0], errs[1])
		}
		names := r.names(r.b)
		if len(names) != 1 {
			t.Fatalf("the tree fell apart: %q", names)
		}
		if err := r.c.Rename(t.Context(), r.b, names[0], r.mkdir(r.b, "done"), "z", 0); err != nil {
			t.Fatal(err)
		}
		if err := r.c.Rename(t.Context(), r.b, "done", r.b, "kept"+r.lookup("done").Ino.String(), 0); err != nil {
			t.Fatal(err)
		}
		for _, n := range r.names(r.b) {
			if n == "a" || n == "b" {
				t.Fatalf("%q is still there", n)
			}
		}
		r.b = r.mkdir(r.b, "next")
	}
}

func TestRename_OfADirectoryKeepsWhatIsBelowWhenItIsListedAgain(t *testing.T) {
	f := newFaulty(t, 3, short)
	f.put("a/b/f", []byte("x"))
	f.lookup("a", "b", "f")
	if err := f.c.Rename(t.Context(), f.b, "a", f.b, "c", 0); err != nil {
		t.Fatal(err)
	}
	b := f.lookup("c", "b").Ino
	if err := f.c.Refresh(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if got := f.names(b); !slices.Equal(got, []string{"f"}) {
		t.Fatalf("names %q after looking again", got)
	}
	f.flush()
	if got := f.keys(); !slices.Equal(got, []string{"c/", "c/b/", "c/b/f"}) && !slices.Equal(got, []string{"c/", "c/b/f"}) {
		t.Errorf("keys %q", got)
	}
}

func TestRename_OfADirectoryTakesWhatWasNeverListed(t *testing.T) {
	for _, look := range []bool{true, false} {
		t.Run(fmt.Sprint(look), func(t *testing.T) {
			f := newFaulty(t, 3, short)
			f.put("a/b/f", []byte("x"))
			f.lookup("a", "b")
			if err := f.c.Rename(t.Context(), f.b, "a", f.b, "c", 0); err != nil {
				t.Fatal(err)
			}
			if b := f.lookup("c", "b").Ino; look && !slices.Equal(f.names(b), []string{"f"}) {
				t.Errorf("names %q", f.names(b))
			}
			f.flush()
			if got := f.keys(); !slices.Contains(got, "c/b/f") || slices.Contains(got, "a/b/f") {
				t.Errorf("keys %q", got)
			}
		})
	}
}

func TestPersist_AFileThatCameBackOverwritesItsOwnObject(t *testing.T) {
	r := newRig(t, 3, nil)
	ino := r.write(r.b, "f", []byte("a"))
	d := r.mkdir(r.b, "d")
	r.flush()
	if err := r.c.Rename(t.Context(), r.b, "f", d, "g", 0); err != nil {
		t.Fatal(err)
	}
	if err := r.c.Rename(t.Context(), d, "g", r.b, "f", 0); err != nil {
		t.Fatal(err)
	}
	r.overwrite(ino, 0, []byte("b"))
	r.flush()
	if got := r.keys(); !slices.Equal(got, []string{"d/", "f"}) {
		t.Errorf("keys %q", got)
	}
	if got := r.object("f"); string(got) != "b" {
		t.Errorf("f holds %q", got)
	}
}
