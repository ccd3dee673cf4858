//go:build integration

package servertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/filelock"
	"github.com/objcache/objcache/server"
	"github.com/objcache/objcache/server/client"
	"github.com/objcache/objcache/server/fsck"
	"github.com/objcache/objcache/server/fsck/online"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
	"github.com/objcache/objcache/test/wait"
)

// checker opens a check of the rig's servers, which ends with the test.
func (r *rig) checker(verify bool) *online.Cluster {
	r.t.Helper()
	c, err := online.Open(r.t.Context(), online.Config{Servers: []string{r.cl.Configs[0].Listen}, Verify: verify})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := c.Close(); err != nil {
			r.t.Error(err)
		}
	})
	return c
}

func (r *rig) fsck(verify bool) []fsck.Finding {
	r.t.Helper()
	rep, unsure, err := r.checker(verify).Check(r.t.Context())
	if err != nil || unsure > 0 {
		r.t.Fatalf("check: %d unsure, %v", unsure, err)
	}
	return rep.Findings
}

func describe(found []fsck.Finding) (s string) {
	for _, f := range found {
		s += fmt.Sprintf("\n%s %s: %s", f.Code, f.Where(), f.Text)
	}
	return s
}

// TestFsck_FindsNothingUnderAWorkload: whatever goes on meanwhile is no finding.
func TestFsck_FindsNothingUnderAWorkload(t *testing.T) {
	r := newRig(t, 3, func(c *server.Config) { c.FlushInterval = server.Duration(300 * time.Millisecond) })
	ctx, stop := context.WithCancel(t.Context())
	work, ctx := errgroup.WithContext(ctx)
	var done atomic.Int64
	for i := range 4 {
		d := r.mkdir(r.b, fmt.Sprint("d", i))
		other := r.mkdir(r.b, fmt.Sprint("e", i))
		c := r.cl.Client()
		work.Go(func() error {
			p := bustle{c: c, dirs: []objcache.Ino{d, other}, rng: rand.New(rand.NewPCG(7, uint64(i)))}
			for ctx.Err() == nil {
				if err := p.turn(ctx); err != nil && ctx.Err() == nil {
					return err
				}
				done.Add(1)
			}
			return nil
		})
	}
	for range 5 {
		before := done.Load()
		wait.Until(t, 30*time.Second, "the workload goes on", func() bool { return done.Load() > before+150 || ctx.Err() != nil })
		rep, unsure, err := r.checker(false).Check(t.Context())
		if err != nil || len(rep.Findings) > 0 {
			t.Errorf("%d unsure, %v, found%s", unsure, err, describe(rep.Findings))
		}
	}
	stop()
	if err := work.Wait(); err != nil {
		t.Error(err)
	}
	t.Logf("%d operations", done.Load())
	if found := r.fsck(true); len(found) > 0 {
		t.Errorf("at rest, with all bytes read: found%s", describe(found))
	}
}

// bustle changes a few names of two directories.
type bustle struct {
	c    *client.Client
	dirs []objcache.Ino
	rng  *rand.Rand
}

func (b *bustle) name() (objcache.Ino, string) {
	return b.dirs[b.rng.IntN(len(b.dirs))], fmt.Sprint("n", b.rng.IntN(6))
}

// turn does one thing; that names are not there or are there is no failure.
func (b *bustle) turn(ctx context.Context) (err error) {
	d, n := b.name()
	to, m := b.name()
	switch b.rng.IntN(6) {
	case 0:
		err = b.c.Unlink(ctx, d, n)
	case 1:
		err = b.c.Rename(ctx, d, n, to, m, 0)
	case 2:
		var a objcache.Attr
		if a, err = b.c.Lookup(ctx, d, n); err == nil {
			_, err = b.c.Link(ctx, a.Ino, to, m)
		}
	case 3:
		_, err = b.c.Create(ctx, d, n, objcache.NewNode{Mode: objcache.ModeDir | 0o755})
	case 4:
		err = b.c.Rmdir(ctx, d, n)
	default:
		err = b.write(ctx, d, n)
	}
	for _, k := range []objcache.Kind{
		objcache.NotExist, objcache.Exist, objcache.IsDir, objcache.NotDir, objcache.NotEmpty, objcache.Permission, objcache.NotPermitted, objcache.Stale, objcache.Invalid,
	} {
		if errors.Is(err, k) {
			return nil
		}
	}
	return err
}

func (b *bustle) write(ctx context.Context, d objcache.Ino, n string) error {
	a, err := b.c.Create(ctx, d, n, objcache.NewNode{Mode: objcache.ModeRegular | 0o644})
	if err != nil {
		return err
	}
	body := make([]byte, b.rng.IntN(300<<10))
	off := int64(b.rng.IntN(2)) * objcache.ChunkSize
	_, err = b.c.Flush(ctx, objcache.Flush{
		Ino: a.Ino, Dirty: []objcache.Range{{Off: off, Len: int64(len(body))}}, Src: at{off, body}, Size: off + int64(len(body)), Mtime: time.Now(),
	})
	return err
}

// plantRow changes a row behind everybody's back, but for the log's.
func (r *rig) plantRow(key []byte, change func(old []byte) []byte) {
	r.t.Helper()
	for i, s := range r.cl.Servers {
		row := &rpc.RepairRow{Key: key}
		found := false
		err := fsck.Each(s.Rows(), func(k, v []byte) error {
			if string(k) == string(key) {
				found = true
				row.Before = append([]byte{}, v...)
			}
			return nil
		})
		if err != nil {
			r.t.Fatal(err)
		}
		if !found {
			continue
		}
		row.After = change(row.Before)
		g := objcache.GroupID(r.cl.Configs[i].Members[i].Group)
		step := &rpc.Step{Step: &rpc.Step_RepairRows{RepairRows: &rpc.RepairRows{Group: uint32(g), Rows: []*rpc.RepairRow{row}}}}
		if err := r.checker(false).Carry(r.t.Context(), fsck.Repair{Group: g, Steps: []*rpc.Step{step}}); err != nil {
			r.t.Fatal(err)
		}
		return
	}
	r.t.Fatalf("no group has row %x", key)
}

// plantLock lets a session have a lock on a file.
func (r *rig) plantLock(ino objcache.Ino, session uint64) {
	r.t.Helper()
	l := meta.FileLocks{}
	l.Posix = l.Posix.Set(filelock.Lock{Owner: filelock.Owner{Session: session}, Exclusive: true, End: 99})
	row, err := meta.FileLocksRow(ino, l)
	if err != nil {
		r.t.Fatal(err)
	}
	g := r.c.View().OwnerOfInode(ino)
	step := &rpc.Step{Step: &rpc.Step_RepairRows{RepairRows: &rpc.RepairRows{Group: uint32(g), Rows: []*rpc.RepairRow{{Key: row.GetKey(), After: row.GetValue()}}}}}
	if err := r.checker(false).Carry(r.t.Context(), fsck.Repair{Group: g, Steps: []*rpc.Step{step}}); err != nil {
		r.t.Fatal(err)
	}
}

func drop([]byte) []byte { return nil }

func changeInode(t *testing.T, f func(*record.Inode)) func([]byte) []byte {
	return func(old []byte) []byte {
		in := &record.Inode{}
		if err := proto.Unmarshal(old, in); err != nil {
			t.Fatal(err)
		}
		f(in)
		v, err := proto.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func (r *rig) mend(o fsck.Options) fsck.Outcome {
	r.t.Helper()
	c := r.checker(false)
	out, err := fsck.Mend(r.t.Context(), c.Check, c.Carry, o)
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

// TestFsck_RepairsACluster: what a group has lost is taken away from the others, what external storage has comes back, and what is dirty stays.
func TestFsck_RepairsACluster(t *testing.T) {
	r := newRig(t, 3, func(c *server.Config) { c.FlushInterval = server.Duration(time.Hour) })
	d := r.mkdir(r.b, "d")
	lost, kept := random(300<<10, 1), random(300<<10, 2)
	gone := r.write(d, "persisted", lost)
	r.flush()
	dirty := r.write(d, "dirty", kept)
	r.plantRow(meta.InodeKey(gone), drop)
	r.plantRow(meta.EntryKey(d, "dirty"), drop)
	r.plantRow(meta.InodeKey(d), changeInode(t, func(in *record.Inode) { in.Nlink = 9 }))
	r.plantLock(dirty, 12345)
	found := r.fsck(false)
	for _, want := range []string{
		"lock-without-session /data/d/dirty", "entry-without-inode /data/d/persisted", "link-without-entry /data/d/dirty", "link-count /data/d", "cookie /data/d/dirty",
	} {
		if !slices.ContainsFunc(found, func(f fsck.Finding) bool { return string(f.Code)+" "+f.Where() == want }) {
			t.Errorf("%s is not found, but%s", want, describe(found))
		}
	}
	c := r.checker(false)
	if plan, err := fsck.Mend(t.Context(), c.Check, nil, fsck.Options{}); err != nil || len(plan.Repairs) == 0 || plan.Clean() {
		t.Errorf("planned %+v, %v", plan.Repairs, err)
	}
	if again := r.fsck(false); describe(again) != describe(found) {
		t.Errorf("a plan changed something: now found%s", describe(again))
	}
	out := r.mend(fsck.Options{})
	if !out.Clean() || len(out.Repairs) == 0 {
		t.Errorf("%d repairs, left%s", len(out.Repairs), describe(out.Left))
	}
	if found := r.fsck(true); len(found) > 0 {
		t.Errorf("the next check found%s", describe(found))
	}
	same(t, "what external storage had", r.read(r.lookup("d", "persisted").Ino), lost)
	if a := r.lookup("d", "dirty"); a.Ino != dirty {
		t.Errorf("the dirty file is inode %d", a.Ino)
	}
	same(t, "what only the servers had", r.read(dirty), kept)
	r.flush()
	same(t, "in the bucket", r.object("d/dirty"), kept)
}

// TestFsck_RevertsAFileWithLostBytes: wholly to what is persisted, and only when told to.
func TestFsck_RevertsAFileWithLostBytes(t *testing.T) {
	r := newRig(t, 3, func(c *server.Config) { c.FlushInterval = server.Duration(time.Hour) })
	first, second := random(900<<10, 1), random(300<<10, 2)
	ino := r.write(r.b, "file", first)
	r.flush()
	r.overwrite(ino, 100<<10, second)
	never := r.write(r.b, "never", random(200<<10, 3))
	r.rot(second[70<<10:][:1000])
	r.rot(random(200<<10, 3)[70<<10:][:1000])
	found := r.fsck(true)
	if len(found) != 2 || found[0].Where() != "/data/file" || found[1].Where() != "/data/never" || found[0].Code != "extent-rotten" {
		t.Fatalf("found%s", describe(found))
	}
	if out := r.mend(fsck.Options{}); len(out.Repairs) > 0 || out.Clean() {
		t.Fatalf("without leave: %+v", out)
	}
	out := r.mend(fsck.Options{RevertLost: true})
	if !out.Clean() || len(out.Repairs) != 2 || !out.Repairs[0].Lost || out.Repairs[0].Path != "/data/file" || out.Repairs[1].Path != "/data/never" {
		t.Errorf("%+v, left%s", out.Repairs, describe(out.Left))
	}
	same(t, "the persisted version", r.read(ino), first)
	if _, err := r.c.Getattr(t.Context(), never); err == nil {
		t.Error("a file that nothing is left of is there")
	}
	r.flush()
	same(t, "in the bucket", r.object("file"), first)
	if found := r.fsck(true); len(found) > 0 {
		t.Errorf("afterwards: found%s", describe(found))
	}
}
