//go:build integration

package servertest

import (
	"bytes"
	"context"
	"errors"
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
	"github.com/objcache/objcache/test/faultproxy"
	"github.com/objcache/objcache/test/s3server"
	"github.com/objcache/objcache/test/wait"
)

// faulty is a cluster whose external storage goes through the fault proxy; r.s3 goes around it.
type faulty struct {
	*rig
	proxy *faultproxy.Server
}

func newFaulty(t *testing.T, servers int, change func(*server.Config)) *faulty {
	t.Helper()
	gw := s3server.Versitygw(t, "bucket")
	store, err := s3.Open(t.Context(), gw.S3)
	if err != nil {
		t.Fatal(err)
	}
	p, err := faultproxy.Start("127.0.0.1:0", gw.S3.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	f := &faulty{&rig{t: t, s3: store}, p}
	f.start(servers, server.Bucket{
		DirName: "data", BucketName: gw.S3.Bucket, Endpoint: p.URL, AccessKey: gw.S3.AccessKey, SecretKey: gw.S3.SecretKey, Region: gw.S3.Region,
	}, change)
	return f
}

func (f *faulty) fault(r faultproxy.Rule) (remove func()) {
	f.t.Helper()
	id, err := f.proxy.Add(r)
	if err != nil {
		f.t.Fatal(err)
	}
	return func() { f.proxy.Remove(id) }
}

// in is the same cluster in a subtest.
func (f *faulty) in(t *testing.T) *faulty {
	r := *f.rig
	r.t = t
	return &faulty{&r, f.proxy}
}

func patient(c *server.Config) { c.S3Timeout = server.Duration(3 * time.Second) }

func TestRead_SurvivesPassingFaultsOfExternalStorage(t *testing.T) {
	f := newFaulty(t, 2, nil)
	body := random(9<<20, 1)
	half := int64(1 << 20)
	for name, fault := range map[string]faultproxy.Fault{
		"500": {Status: 500}, "503": {Status: 503}, "reset": {Reset: true}, "truncated body": {Truncate: &half},
	} {
		t.Run(name, func(t *testing.T) {
			f := f.in(t)
			key := strings.ReplaceAll(name, " ", "-")
			f.put(key, body)
			if err := f.refresh(); err != nil {
				t.Fatal(err)
			}
			defer f.fault(faultproxy.Rule{Op: external.OpGet, Key: "^" + key + "$", Times: 2, Fault: fault})()
			if !bytes.Equal(f.read(f.lookup(key).Ino), body) {
				t.Error("bytes differ")
			}
		})
	}
}

// refresh makes the cluster look at the bucket again now.
func (f *faulty) refresh() error { return f.c.Refresh(f.t.Context(), f.b) }

func TestRead_FaultsThatStayHaveTheRightKind(t *testing.T) {
	f := newFaulty(t, 2, patient)
	body := random(300<<10, 2)
	for key, want := range map[string]struct {
		fault faultproxy.Fault
		kind  objcache.Kind
	}{
		"denied":       {faultproxy.Fault{Status: 403}, objcache.Permission},
		"wrong-length": {faultproxy.Fault{LengthDelta: 5}, objcache.IO},
		"broken":       {faultproxy.Fault{Status: 503}, objcache.IO},
	} {
		f.put(key, body)
		if err := f.refresh(); err != nil {
			t.Fatal(err)
		}
		a := f.lookup(key)
		remove := f.fault(faultproxy.Rule{Op: external.OpGet, Key: "^" + key + "$", Fault: want.fault})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		_, err := f.c.ReadAt(ctx, a.Ino, a.Version, make([]byte, 100), 0)
		cancel()
		if !errors.Is(err, want.kind) {
			t.Errorf("%s: %v is not %v", key, err, want.kind)
		}
		remove()
		if !bytes.Equal(f.read(a.Ino), body) {
			t.Errorf("%s: bytes differ after the fault has passed", key)
		}
	}
}

func TestRead_MissingObjectIsAnErrorNeverZeros(t *testing.T) {
	f := newFaulty(t, 2, nil)
	f.put("f", random(300<<10, 3))
	a := f.lookup("f")
	if err := f.s3.Delete(t.Context(), "f"); err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 1000)
	n, err := f.c.ReadAt(t.Context(), a.Ino, a.Version, p, 0)
	if err == nil {
		t.Fatalf("read %d bytes of an object that is gone", n)
	}
	if k := objcache.KindOf(err); k != objcache.Stale && k != objcache.Superseded && k != objcache.NotExist {
		t.Errorf("%v is of kind %v", err, k)
	}
}

func TestRead_ChangedObjectIsOldOrNewNeverAMix(t *testing.T) {
	f := newFaulty(t, 3, func(c *server.Config) { c.ExternalTTL = server.Duration(200 * time.Millisecond) })
	old, young := random(33<<20, 4), random(20<<20, 5)
	f.put("f", old)
	a := f.lookup("f")
	part := make([]byte, 1<<20)
	if _, err := f.c.ReadAt(t.Context(), a.Ino, a.Version, part, 0); err != nil || !bytes.Equal(part, old[:1<<20]) {
		t.Fatalf("first read: %v", err)
	}
	f.put("f", young)
	rest := make([]byte, 1<<20)
	if _, err := f.c.ReadAt(t.Context(), a.Ino, a.Version, rest, 20<<20); err == nil && !bytes.Equal(rest, old[20<<20:21<<20]) {
		t.Error("a read of the old version returned other bytes")
	}
	wait.Until(t, 5*time.Second, "the new object is seen", func() bool { return f.lookup("f").Size == int64(len(young)) })
	if !bytes.Equal(f.read(f.lookup("f").Ino), young) {
		t.Error("the new version differs")
	}
}

func TestNames_OtherClientsPutAndDeleteAreSeenWithinTheTTL(t *testing.T) {
	f := newFaulty(t, 3, func(c *server.Config) { c.ExternalTTL = server.Duration(300 * time.Millisecond) })
	ctx := t.Context()
	if _, err := f.c.Lookup(ctx, f.b, "late"); !errors.Is(err, objcache.NotExist) {
		t.Fatalf("late: %v", err)
	}
	f.put("late", []byte("x"))
	f.put("gone", []byte("y"))
	wait.Until(t, 5*time.Second, "late is there", func() bool { _, err := f.c.Lookup(ctx, f.b, "late"); return err == nil })
	wait.Until(t, 5*time.Second, "gone is there", func() bool { _, err := f.c.Lookup(ctx, f.b, "gone"); return err == nil })
	if err := f.s3.Delete(ctx, "gone"); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, 5*time.Second, "gone is gone", func() bool { _, err := f.c.Lookup(ctx, f.b, "gone"); return errors.Is(err, objcache.NotExist) })
	if got := f.names(f.b); !slices.Equal(got, []string{"late"}) {
		t.Errorf("names %q", got)
	}
}

func TestExternalStorageDown_CachedReadsAndWritesGoOn(t *testing.T) {
	f := newFaulty(t, 3, patient)
	body, more := random(5<<20, 6), random(5<<20, 7)
	f.put("cached", body)
	ino := f.lookup("cached").Ino
	if !bytes.Equal(f.read(ino), body) {
		t.Fatal("bytes differ")
	}
	up := f.fault(faultproxy.Rule{Fault: faultproxy.Fault{Reset: true}})
	if !bytes.Equal(f.read(ino), body) {
		t.Error("cached bytes differ while external storage is down")
	}
	written := f.write(f.b, "written", more)
	if !bytes.Equal(f.read(written), more) {
		t.Error("written bytes differ while external storage is down")
	}
	up()
	f.flush()
	if !bytes.Equal(f.object("written"), more) {
		t.Error("the object differs")
	}
}

// same compares an object and names the first difference.
func same(t *testing.T, what string, got, want []byte) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s has %d bytes, want %d", what, len(got), len(want))
		return
	}
	for i := range got {
		if got[i] != want[i] {
			n := 0
			for j := i; j < len(got); j++ {
				if got[j] != want[j] {
					n++
				}
			}
			t.Errorf("%s differs from byte %d on (%x instead of %x), in %d bytes", what, i, got[i], want[i], n)
			return
		}
	}
}

func TestPersist_SurvivesLostRepliesAndFaults(t *testing.T) {
	for name, rule := range map[string]faultproxy.Rule{
		"put, lost reply":      {Op: external.OpPut, Key: "^dir/", Times: 2, Fault: faultproxy.Fault{LostReply: true}},
		"put, 503":             {Op: external.OpPut, Key: "^dir/", Times: 3, Fault: faultproxy.Fault{Status: 503}},
		"complete, lost reply": {Op: external.OpCompleteUpload, Times: 1, Fault: faultproxy.Fault{LostReply: true}},
		"part, reset":          {Op: external.OpUploadPart, Times: 3, Fault: faultproxy.Fault{Reset: true}},
		"create, lost reply":   {Op: external.OpCreateUpload, Times: 1, Fault: faultproxy.Fault{LostReply: true}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFaulty(t, 3, nil)
			small, large := random(100<<10, 8), random(35<<20, 9)
			d := f.mkdir(f.b, "dir")
			f.write(d, "small", small)
			f.write(d, "large", large)
			f.fault(rule)
			f.flush()
			f.flush()
			same(t, "dir/small", f.object("dir/small"), small)
			same(t, "dir/large", f.object("dir/large"), large)
			if ks := f.keys(); !slices.Equal(ks, []string{"dir/", "dir/large", "dir/small"}) {
				t.Errorf("keys %q", ks)
			}
		})
	}
}

func TestPersist_ForeignChangeUnderADirtyFileKeepsBoth(t *testing.T) {
	f := newFaulty(t, 3, nil)
	f.put("f", []byte("first"))
	ino := f.lookup("f").Ino
	f.overwrite(ino, 0, []byte("ours!"))
	f.put("f", []byte("theirs"))
	f.flush()
	f.flush()
	if got := f.object("f"); string(got) != "ours!" {
		t.Errorf("f is %q", got)
	}
	kept := false
	for _, k := range f.keys() {
		kept = kept || strings.HasPrefix(k, "f.objcache-conflict-") && string(f.object(k)) == "theirs"
	}
	if !kept {
		t.Errorf("the other client's object is lost: keys %q", f.keys())
	}
}

func TestPersist_ForeignChangeUnderADirtyFileIsOverwrittenWhereThatIsAskedFor(t *testing.T) {
	f := newFaulty(t, 2, func(c *server.Config) { c.Conflict = "overwrite" })
	f.put("f", []byte("first"))
	f.overwrite(f.lookup("f").Ino, 0, []byte("ours!"))
	f.put("f", []byte("theirs"))
	f.flush()
	if got := f.object("f"); string(got) != "ours!" {
		t.Errorf("f is %q", got)
	}
	if ks := f.keys(); len(ks) != 1 {
		t.Errorf("keys %q", ks)
	}
}

func TestPersist_SmallChangeOfALargeObjectCopiesTheRest(t *testing.T) {
	f := newFaulty(t, 3, nil)
	body := random(128<<20, 10)
	f.put("big", body)
	ino := f.lookup("big").Ino
	f.proxy.ResetCounters()
	change := random(1<<20, 11)
	copy(body[50<<20+12345:], change)
	f.overwrite(ino, 50<<20+12345, change)
	f.flush()
	c := f.proxy.Counters()
	if n := c.Requests[external.OpUploadPart]; n > 2 {
		t.Errorf("%d parts uploaded, want at most 2", n)
	}
	if c.Requests[external.OpCopyPart] < 6 {
		t.Errorf("%d parts copied", c.Requests[external.OpCopyPart])
	}
	if got := f.object("big"); !bytes.Equal(got, body) {
		t.Error("the object differs")
	}
}

func TestRestart_WithoutExternalStorageServesWhatIsCached(t *testing.T) {
	f := newFaulty(t, 2, patient)
	body, more := random(3<<20, 13), random(100<<10, 14)
	f.put("cached", body)
	ino := f.lookup("cached").Ino
	if !bytes.Equal(f.read(ino), body) {
		t.Fatal("bytes differ")
	}
	written := f.write(f.b, "written", more)
	up := f.fault(faultproxy.Rule{Fault: faultproxy.Fault{Reset: true}})
	for i := range f.cl.Servers {
		f.cl.Down(i)
	}
	for i := range f.cl.Servers {
		f.cl.Up(i)
	}
	if !bytes.Equal(f.read(ino), body) || !bytes.Equal(f.read(written), more) {
		t.Error("bytes differ after a restart without external storage")
	}
	up()
	f.flush()
	same(t, "written", f.object("written"), more)
}

func TestSync_UploadModesPutTheObjectBeforeTheyReturn(t *testing.T) {
	for mode, closing := range map[string]bool{"onClose": true, "onFsync": false} {
		t.Run(mode, func(t *testing.T) {
			r := newRig(t, 2, func(c *server.Config) { c.Upload = mode })
			body := random(20<<20, 15)
			ino := r.write(r.b, "f", body)
			if err := r.c.Sync(t.Context(), ino, closing); err != nil {
				t.Fatal(err)
			}
			same(t, "f", r.object("f"), body)
		})
	}
}

func TestPersist_ForeignChangeIsOverwrittenWhenAskedTo(t *testing.T) {
	f := newFaulty(t, 2, func(c *server.Config) { c.Conflict = "overwrite" })
	f.put("f", []byte("first"))
	f.overwrite(f.lookup("f").Ino, 0, []byte("ours!"))
	f.put("f", []byte("theirs"))
	f.flush()
	f.flush()
	same(t, "f", f.object("f"), []byte("ours!"))
	if ks := f.keys(); !slices.Equal(ks, []string{"f"}) {
		t.Errorf("keys %q", ks)
	}
}

func TestTimeout_AnOperationWithoutServersEndsInEIO(t *testing.T) {
	r := newRig(t, 2, nil)
	c, err := client.Open(t.Context(), client.Config{Servers: []string{r.cl.Configs[0].Listen}, Timeout: 300 * time.Millisecond, Logger: Logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	for i := range r.cl.Servers {
		r.cl.Down(i)
	}
	if _, err := c.Getattr(t.Context(), r.b); !errors.Is(err, objcache.IO) {
		t.Errorf("without servers: %v", err)
	}
	r.cl.Up(0)
	r.cl.Up(1)
	if _, err := c.Getattr(t.Context(), r.b); err != nil {
		t.Errorf("with servers again: %v", err)
	}
}

func TestPersist_ObjectDeletedOutsideUnderADirtyFileIsWrittenAnew(t *testing.T) {
	f := newFaulty(t, 2, nil)
	large := random(20<<20, 16)
	f.write(f.b, "small", []byte("first"))
	f.write(f.b, "large", large)
	f.flush()
	small, big := f.lookup("small").Ino, f.lookup("large").Ino
	if !bytes.Equal(f.read(big), large) { // all of it is cached: only the keys are missed
		t.Fatal("bytes differ")
	}
	f.overwrite(small, 0, []byte("again"))
	f.overwrite(big, 0, large[:1<<20])
	for _, k := range []string{"small", "large"} {
		if err := f.s3.Delete(t.Context(), k); err != nil {
			t.Fatal(err)
		}
	}
	f.flush()
	same(t, "small", f.object("small"), []byte("again"))
	same(t, "large", f.object("large"), large)
}

func TestUnlink_AfterAnUploadOfUnknownOutcomeDeletesTheLaterObject(t *testing.T) {
	f := newFaulty(t, 2, func(c *server.Config) { patient(c); c.ExternalTTL = server.Duration(100 * time.Millisecond) })
	ino := f.write(f.b, "f", []byte("first"))
	f.flush()
	f.overwrite(ino, 0, []byte("later"))
	lost := f.fault(faultproxy.Rule{Op: external.OpPut, Key: "^f$", Times: 1, Fault: faultproxy.Fault{LostReply: true}})
	blind := f.fault(faultproxy.Rule{Op: external.OpHead, Key: "^f$", Fault: faultproxy.Fault{Status: 503}})
	if err := f.c.Work(t.Context(), rpc.WorkRequest_FLUSH, 0, func(*rpc.Progress) {}); err != nil {
		t.Fatal(err)
	}
	same(t, "f", f.object("f"), []byte("later")) // it is there, and nobody knows
	if err := f.c.Unlink(t.Context(), f.b, "f"); err != nil {
		t.Fatal(err)
	}
	lost()
	blind()
	wait.Until(t, time.Minute, "the object is deleted", func() bool { return len(f.keys()) == 0 })
	if got := f.names(f.b); len(got) != 0 {
		t.Errorf("names %q", got)
	}
}

func TestPersist_TheOnlyCopyOfARenamedFileIsNotOverwritten(t *testing.T) {
	f := newFaulty(t, 2, nil)
	f.write(f.b, "f", []byte("old"))
	f.flush()
	if err := f.c.Rename(t.Context(), f.b, "f", f.b, "g", 0); err != nil {
		t.Fatal(err)
	}
	young := f.write(f.b, "f", []byte("young"))
	denied := f.fault(faultproxy.Rule{Key: "^g$", Fault: faultproxy.Fault{Status: 403}})
	if err := f.c.Work(t.Context(), rpc.WorkRequest_FLUSH, 0, func(*rpc.Progress) {}); err != nil {
		t.Fatal(err)
	}
	same(t, "f, while g cannot be written", f.object("f"), []byte("old"))
	denied()
	f.flush()
	same(t, "f", f.object("f"), []byte("young"))
	same(t, "g", f.object("g"), []byte("old"))
	if got := f.read(young); string(got) != "young" {
		t.Errorf("f reads %q", got)
	}
}

func TestPersist_ADirectoryWaitsForTheOneThatHadItsPath(t *testing.T) {
	f := newFaulty(t, 2, nil)
	d := f.mkdir(f.b, "d")
	f.write(d, "x", []byte("old"))
	f.flush()
	if err := f.c.Rename(t.Context(), f.b, "d", f.b, "e", 0); err != nil {
		t.Fatal(err)
	}
	f.write(f.mkdir(f.b, "d"), "x", []byte("young"))
	denied := f.fault(faultproxy.Rule{Key: "^e/", Fault: faultproxy.Fault{Status: 403}})
	if err := f.c.Work(t.Context(), rpc.WorkRequest_FLUSH, 0, func(*rpc.Progress) {}); err != nil {
		t.Fatal(err)
	}
	same(t, "d/x, while e cannot be written", f.object("d/x"), []byte("old"))
	denied()
	f.flush()
	same(t, "d/x", f.object("d/x"), []byte("young"))
	same(t, "e/x", f.object("e/x"), []byte("old"))
}
