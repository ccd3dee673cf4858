//go:build integration

package servertest

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server"
	"github.com/objcache/objcache/server/external"
	"github.com/objcache/objcache/test/faultproxy"
	"github.com/objcache/objcache/test/wait"
)

// s3fsMeta are the headers that s3fs 1.90 writes (taken from its requests), with a mode.
func s3fsMeta(mode string, more map[string]string) map[string]string {
	m := map[string]string{
		"mode": mode, "uid": "1000", "gid": "1001", "mtime": "1577934245.123456789", "atime": "1577934246", "ctime": "1795254630",
	}
	maps.Copy(m, more)
	return m
}

func (r *rig) putMeta(key, body string, meta map[string]string) {
	r.t.Helper()
	if _, err := r.s3.Put(r.t.Context(), key, bytes.NewReader([]byte(body)), meta, external.Condition{}); err != nil {
		r.t.Fatal(err)
	}
}

func (f *faulty) heads() int64 { return f.proxy.Counters().Requests[external.OpHead] }

// short makes a cluster look at external storage again soon.
func short(c *server.Config) { c.ExternalTTL = server.Duration(300 * time.Millisecond) }

func (r *rig) entries(dir objcache.Ino) map[string]objcache.Attr {
	r.t.Helper()
	out := map[string]objcache.Attr{}
	for cookie, eof := uint64(0), false; !eof; {
		var es []objcache.DirEntry
		var err error
		if es, eof, err = r.c.Readdir(r.t.Context(), dir, cookie, 1000); err != nil {
			r.t.Fatalf("readdir: %v", err)
		}
		for _, e := range es {
			out[e.Name], cookie = e.Attr, e.Cookie
		}
	}
	return out
}

// putS3fs is what s3fs makes of: mkdir -m 700 d; echo hi > d/f; chmod 640 d/f; ln -s ../x/y d/l; mkfifo d/p; setfattr d/f.
func (r *rig) putS3fs() {
	r.putMeta("d/", "", s3fsMeta("16832", nil))
	r.putMeta("d/f", "hi\n", s3fsMeta("33184", map[string]string{"xattr": "%7B%22user.a%22%3A%22dmFsOiIx%22%2C%22user.b%22%3A%22eg%3D%3D%22%7D"}))
	r.putMeta("d/l", "../x/y", s3fsMeta("41471", nil))
	r.putMeta("d/p", "", s3fsMeta("4516", nil))
	r.putMeta("d/e/", "", s3fsMeta("16832", nil))
	r.putMeta("d/e/g", "deep", s3fsMeta("33152", nil))
}

func (r *rig) checkS3fs() {
	r.t.Helper()
	stamp := time.Unix(1577934245, 123456789)
	d := r.lookup("d")
	for name, want := range map[string]uint32{
		"f": objcache.ModeRegular | 0o640, "l": objcache.ModeSymlink | 0o777, "p": objcache.ModeFifo | 0o644, "e": objcache.ModeDir | 0o700,
	} {
		for how, a := range map[string]objcache.Attr{"readdir": r.entries(d.Ino)[name], "lookup": r.lookup("d", name)} {
			if a.Mode != want || a.UID != 1000 || a.GID != 1001 || !a.Mtime.Equal(stamp) {
				r.t.Errorf("%s of d/%s: mode %o, owner %d:%d, mtime %v", how, name, a.Mode, a.UID, a.GID, a.Mtime)
			}
		}
	}
	if a := r.lookup("d"); a.Mode != objcache.ModeDir|0o700 || a.UID != 1000 || !a.Mtime.Equal(stamp) {
		r.t.Errorf("d: mode %o, owner %d:%d, mtime %v", a.Mode, a.UID, a.GID, a.Mtime)
	}
	if a := r.lookup("d", "l"); a.Target != "../x/y" || a.Size != 6 {
		r.t.Errorf("d/l points to %q, size %d", a.Target, a.Size)
	}
	if a := r.lookup("d", "e", "g"); a.Mode != objcache.ModeRegular|0o600 || a.UID != 1000 {
		r.t.Errorf("d/e/g: mode %o, owner %d", a.Mode, a.UID)
	}
	for name, want := range map[string]string{"user.a": `val:"1`, "user.b": "z"} {
		if v, err := r.c.Getxattr(r.t.Context(), r.lookup("d", "f").Ino, name); err != nil || string(v) != want {
			r.t.Errorf("%s of d/f is %q (%v)", name, v, err)
		}
	}
	if got := r.read(r.lookup("d", "f").Ino); string(got) != "hi\n" {
		r.t.Errorf("d/f holds %q", got)
	}
}

func TestForeign_WhatS3fsWroteIsUnderstood(t *testing.T) {
	f := newFaulty(t, 3, nil)
	f.putS3fs()
	f.checkS3fs()
	asked := f.heads()
	f.checkS3fs()
	if again := f.heads() - asked; again != 0 {
		t.Errorf("%d HEAD for what is known", again)
	}
	for i := range f.cl.Servers {
		f.cl.Down(i)
	}
	for i := range f.cl.Servers {
		f.cl.Up(i)
	}
	asked = f.heads()
	f.checkS3fs()
	if again := f.heads() - asked; again != 0 {
		t.Errorf("%d HEAD after a restart for what is known", again)
	}
}

func TestForeign_TopOfABucketIsSampled(t *testing.T) {
	for name, meta := range map[string]map[string]string{"s3fs": s3fsMeta("33152", nil), "plain": nil} {
		t.Run(name, func(t *testing.T) {
			f := newFaulty(t, 3, nil)
			for i := range 20 {
				f.putMeta(fmt.Sprintf("f%02d", i), "x", meta)
			}
			want, most := uint32(objcache.ModeRegular|0o600), int64(20)
			if meta == nil {
				want, most = objcache.ModeRegular|0o644, 3
			}
			asked := f.heads()
			for n, a := range f.entries(f.b) {
				if a.Mode != want {
					t.Errorf("%s: mode %o", n, a.Mode)
				}
			}
			if n := f.heads() - asked; n > most {
				t.Errorf("%d HEAD, want at most %d", n, most)
			}
		})
	}
}

func TestForeign_PlainObjectsAreNotAskedFor(t *testing.T) {
	f := newFaulty(t, 3, nil)
	rclone := map[string]string{"mtime": "1577934245.123456789"}
	for i := range 300 {
		f.putMeta(fmt.Sprintf("tree/d%d/f%03d", i%10, i), "x", rclone)
	}
	f.lookup("tree")
	asked := f.heads()
	for n, a := range f.entries(f.lookup("tree").Ino) {
		for m := range f.entries(a.Ino) {
			f.lookup("tree", n, m)
		}
	}
	if n := f.heads() - asked; n != 0 {
		t.Errorf("%d HEAD below directories that nothing but their objects makes", n)
	}
	// A directory that a person or goofys made has an object, which says that there is nothing to expect.
	f.put("made/", nil)
	for i := range 20 {
		f.put(fmt.Sprintf("made/f%d", i), []byte("x"))
	}
	if err := f.refresh(); err != nil {
		t.Fatal(err)
	}
	asked = f.heads()
	f.entries(f.lookup("made").Ino)
	if n := f.heads() - asked; n > 1 {
		t.Errorf("%d HEAD in a directory of plain objects", n)
	}
}

func TestForeign_OptionSaysAlwaysOrNever(t *testing.T) {
	for option, want := range map[string]time.Time{"always": time.Unix(1577934245, 123456789), "never": {}} {
		t.Run(option, func(t *testing.T) {
			r := newRig(t, 2, nil)
			r.putMeta("tree/f", "x", map[string]string{"mtime": "1577934245.123456789"})
			r.putS3fs()
			b := r.cl.Configs[0].Buckets[0]
			b.ForeignMetadata = option
			r.start(2, b, nil)
			if a := r.lookup("tree", "f"); a.Mtime.Equal(want) != (option == "always") {
				t.Errorf("mtime %v", a.Mtime)
			}
			if a := r.lookup("d", "l"); isSymlink(a) != (option == "always") {
				t.Errorf("mode of d/l %o", a.Mode)
			}
		})
	}
}

func TestForeign_ChangesOfS3fsAreSeen(t *testing.T) {
	f := newFaulty(t, 3, short)
	f.putS3fs()
	f.checkS3fs()
	mode := func(want uint32, path ...string) {
		t.Helper()
		wait.Until(t, 10*time.Second, fmt.Sprintf("mode %o of %v", want, path), func() bool { return f.lookup(path...).Mode == want })
	}
	f.putMeta("d/new", "n", s3fsMeta("33024", nil))
	wait.Until(t, 10*time.Second, "d/new", func() bool { _, err := f.c.Lookup(t.Context(), f.lookup("d").Ino, "new"); return err == nil })
	mode(objcache.ModeRegular|0o400, "d", "new")
	f.putMeta("d/f", "other bytes", s3fsMeta("33261", nil))
	mode(objcache.ModeRegular|0o755, "d", "f")
	// A chmod is a copy onto itself: same bytes, same ETag, a later time, which a listing tells in seconds.
	wait.Until(t, 10*time.Second, "chmod of d/f", func() bool {
		f.putMeta("d/f", "other bytes", s3fsMeta("33152", changedNow()))
		return f.lookup("d", "f").Mode == objcache.ModeRegular|0o600
	})
	wait.Until(t, 10*time.Second, "chmod of d", func() bool {
		f.putMeta("d/", "", s3fsMeta("16877", changedNow()))
		f.put(fmt.Sprintf("d/t%d", time.Now().UnixNano()), nil) // versitygw takes the time of its marker from its directory
		return len(f.names(f.lookup("d").Ino)) > 0 && f.lookup("d").Mode == objcache.ModeDir|0o755
	})
	// A symlink in the place of a file, and a plain file in that of a symlink, are other files.
	before := f.lookup("d", "f").Ino
	f.putMeta("d/f", "elsewhere", s3fsMeta("41471", nil))
	mode(objcache.ModeSymlink|0o777, "d", "f")
	if a := f.lookup("d", "f"); a.Target != "elsewhere" || a.Ino == before {
		t.Errorf("d/f is %+v", a)
	}
	f.put("d/l", []byte("plain"))
	wait.Until(t, 10*time.Second, "d/l is a file", func() bool { return f.lookup("d", "l").IsRegular() })
	if got := f.read(f.lookup("d", "l").Ino); string(got) != "plain" {
		t.Errorf("d/l holds %q", got)
	}
}

// changedNow is what s3fs writes at a chmod.
func changedNow() map[string]string {
	return map[string]string{"ctime": fmt.Sprint(time.Now().Unix() + 1)}
}

func TestForeign_ChmodByS3fsOfWhatWeWroteIsSeen(t *testing.T) {
	f := newFaulty(t, 3, short)
	d := f.mkdir(f.b, "d")
	f.write(d, "f", []byte("x"))
	f.flush()
	if err := f.c.Refresh(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	// The same object again, with older attributes, says nothing: a chmod here reaches the table and not the object.
	mode := uint32(0o640)
	if _, err := f.c.Setattr(t.Context(), f.lookup("d", "f").Ino, objcache.SetAttr{Mode: &mode}); err != nil {
		t.Fatal(err)
	}
	f.flush()
	began := time.Now()
	wait.Until(t, 10*time.Second, "two seconds", func() bool {
		f.putMeta("d/f", "x", s3fsMeta("33024", nil))
		if a := f.lookup("d", "f"); a.Mode != objcache.ModeRegular|0o640 {
			t.Fatalf("mode %o", a.Mode)
		}
		return time.Since(began) > 2*time.Second
	})
	wait.Until(t, 10*time.Second, "chmod of d/f", func() bool {
		f.putMeta("d/f", "x", s3fsMeta("33152", changedNow()))
		return f.lookup("d", "f").Mode == objcache.ModeRegular|0o600
	})
}

func TestForeign_FailureMeansDefaultsAndIsAskedAgain(t *testing.T) {
	f := newFaulty(t, 3, func(c *server.Config) { short(c); patient(c) })
	f.putMeta("d/", "", s3fsMeta("16832", nil))
	d := f.lookup("d").Ino
	f.names(d)
	end := f.fault(faultproxy.Rule{Op: external.OpHead, Fault: faultproxy.Fault{Status: 503}})
	for i := range 40 {
		f.putMeta(fmt.Sprintf("d/f%02d", i), "x", s3fsMeta("33152", nil))
	}
	began := time.Now()
	wait.Until(t, 10*time.Second, "the names", func() bool { return len(f.names(d)) == 40 })
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("names came after %v", took)
	}
	end()
	for i := range 40 {
		n := fmt.Sprintf("f%02d", i)
		wait.Until(t, 10*time.Second, n, func() bool { return f.lookup("d", n).Mode == objcache.ModeRegular|0o600 })
	}
}

func TestForeign_ChmodHereIsNotUndone(t *testing.T) {
	f := newFaulty(t, 3, short)
	f.putS3fs()
	ino := f.lookup("d", "f").Ino
	mode := uint32(0o611)
	if _, err := f.c.Setattr(t.Context(), ino, objcache.SetAttr{Mode: &mode}); err != nil {
		t.Fatal(err)
	}
	f.flush()
	if err := f.c.Refresh(t.Context(), f.lookup("d").Ino); err != nil {
		t.Fatal(err)
	}
	if a := f.lookup("d", "f"); a.Mode != objcache.ModeRegular|0o611 {
		t.Errorf("mode %o", a.Mode)
	}
	fresh := f.reload(2)
	if a := fresh.lookup("d", "f"); a.Mode != objcache.ModeRegular|0o611 || a.UID != 1000 {
		t.Errorf("after a reload mode %o, owner %d", a.Mode, a.UID)
	}
	if a := fresh.lookup("d", "l"); !isSymlink(a) {
		t.Errorf("after a reload mode of d/l %o", a.Mode)
	}
}

func TestForeign_WhatS3fsChangedWhileNoClusterRanIsSeen(t *testing.T) {
	r := newRig(t, 2, nil)
	r.own()
	d := r.lookup("d").Ino
	for range 2 { // what is noted of the objects is what a listing tells
		if err := r.c.Refresh(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	mode := uint32(0o604)
	for _, n := range []string{"f", "l"} {
		if _, err := r.c.Setattr(t.Context(), r.lookup("d", n).Ino, objcache.SetAttr{Mode: &mode}); err != nil {
			t.Fatal(err)
		}
	}
	r.flush()
	was, err := r.s3.Head(t.Context(), "d/f")
	if err != nil {
		t.Fatal(err)
	}
	later := map[string]string{"ctime": fmt.Sprint(time.Now().Unix() + 10)}
	wait.Until(t, 10*time.Second, "later times", func() bool {
		r.putMeta("d/f", "hi", s3fsMeta("33152", later))
		r.putMeta("d/l", "../x/y", s3fsMeta("41471", nil)) // older than the chmod here
		r.putMeta("d/", "", s3fsMeta("16832", later))
		o, err := r.s3.Head(t.Context(), "d/f")
		return err == nil && o.Modified.After(was.Modified.Add(time.Second))
	})
	fresh := r.reload(2)
	fresh.names(fresh.lookup("d").Ino)
	if a := fresh.lookup("d", "f"); a.Mode != objcache.ModeRegular|0o600 || a.UID != 1000 {
		t.Errorf("d/f: mode %o, owner %d", a.Mode, a.UID)
	}
	if a := fresh.lookup("d", "l"); a.Mode != objcache.ModeSymlink|0o604 {
		t.Errorf("d/l: mode %o", a.Mode)
	}
}

// own makes a file, a symlink and a directory with attributes, and brings them to the bucket.
func (r *rig) own() {
	r.t.Helper()
	ctx := r.t.Context()
	d := r.mkdir(r.b, "d")
	ino := r.write(d, "f", []byte("hi"))
	mode, uid, gid, mtime := uint32(0o640), uint32(1000), uint32(1001), time.Unix(1577934245, 123456789)
	if _, err := r.c.Setattr(ctx, ino, objcache.SetAttr{Mode: &mode, UID: &uid, GID: &gid, Mtime: &mtime}); err != nil {
		r.t.Fatal(err)
	}
	if err := r.c.Setxattr(ctx, ino, "user.a", []byte(`val:"1`), 0); err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.c.Create(ctx, d, "l", objcache.NewNode{Mode: objcache.ModeSymlink | 0o777, Target: "../x/y"}); err != nil {
		r.t.Fatal(err)
	}
	r.flush()
}

func TestForeign_OursIsInTheDialectOfS3fs(t *testing.T) {
	r := newRig(t, 3, nil)
	r.own()
	for key, want := range map[string]map[string]string{
		"d/f": {"mode": "33184", "uid": "1000", "gid": "1001", "mtime": "1577934245.123456789", "xattr": "%7B%22user.a%22%3A%22dmFsOiIx%22%7D"},
		"d/l": {"mode": "41471"}, "d/": {"mode": "16877"},
	} {
		o, err := r.s3.Head(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range want {
			if o.Meta[k] != v {
				t.Errorf("%s of %s is %q, want %q", k, key, o.Meta[k], v)
			}
		}
		for _, k := range []string{"atime", "ctime", "uid", "gid", "mtime"} {
			if o.Meta[k] == "" {
				t.Errorf("%s has no %s: %v", key, k, o.Meta)
			}
		}
	}
	if got := r.object("d/l"); string(got) != "../x/y" {
		t.Errorf("object of the symlink holds %q", got)
	}
}

func TestReload_KeepsAttributesWithoutAskingForEachObject(t *testing.T) {
	f := newFaulty(t, 3, nil)
	f.own()
	asked := f.heads()
	f.reload(2).checkOwn()
	if n := f.heads() - asked; n != 0 {
		t.Errorf("%d HEAD although the tables say everything", n)
	}
}

func (r *rig) checkOwn() {
	r.t.Helper()
	a := r.lookup("d", "f")
	if a.Mode != objcache.ModeRegular|0o640 || a.UID != 1000 || a.GID != 1001 || !a.Mtime.Equal(time.Unix(1577934245, 123456789)) {
		r.t.Errorf("d/f: mode %o, owner %d:%d, mtime %v", a.Mode, a.UID, a.GID, a.Mtime)
	}
	if v, err := r.c.Getxattr(r.t.Context(), a.Ino, "user.a"); err != nil || string(v) != `val:"1` {
		r.t.Errorf("user.a of d/f is %q (%v)", v, err)
	}
	if a := r.lookup("d", "l"); !isSymlink(a) || a.Target != "../x/y" {
		r.t.Errorf("d/l: mode %o, target %q", a.Mode, a.Target)
	}
}

func TestReload_WithoutTablesTheObjectsTellTheirAttributes(t *testing.T) {
	r := newRig(t, 3, nil)
	r.own()
	p, err := r.s3.List(t.Context(), external.ListRequest{Prefix: ".objcache/"})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range p.Objects {
		if err := r.s3.Delete(t.Context(), o.Key); err != nil {
			t.Fatal(err)
		}
	}
	r.reload(2).checkOwn()
}

func TestRemove_OfADirectoryWithAForeignMarkerIsFinal(t *testing.T) {
	f := newFaulty(t, 3, short)
	f.put("d/", nil)
	f.put("d/f", []byte("x"))
	f.put("m/", nil)
	f.put("m/f", []byte("x"))
	ctx := t.Context()
	if err := f.c.Unlink(ctx, f.lookup("d").Ino, "f"); err != nil {
		t.Fatal(err)
	}
	if err := f.c.Rmdir(ctx, f.b, "d"); err != nil {
		t.Fatal(err)
	}
	f.names(f.lookup("m").Ino)
	if err := f.c.Rename(ctx, f.b, "m", f.b, "n", 0); err != nil {
		t.Fatal(err)
	}
	f.flush()
	if got := f.keys(); !slices.Equal(got, []string{"n/", "n/f"}) {
		t.Errorf("keys %q", got)
	}
}

func isSymlink(a objcache.Attr) bool { return a.Mode&objcache.ModeMask == objcache.ModeSymlink }
