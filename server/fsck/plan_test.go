package fsck

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/group"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
)

// facts are those of a group in which nothing goes on.
type facts struct{ meta.Facts }

func (facts) Listing(objcache.Ino) bool { return false }

// carry carries a repair out as groups do: all steps, or none.
func (w *world) carry(r Repair) error {
	w.t.Helper()
	if r.Decide != nil {
		w.drop(meta.PreparedKey(&record.TxID{Client: r.Decide.GetClient(), Seq: r.Decide.GetSeq(), TxSeq: r.Decide.GetTxSeq()}))
		return nil
	}
	if r.Expire != 0 {
		w.in.Groups[r.Group-1].Disk.Staged = nil
		return nil
	}
	batches := map[objcache.GroupID]*pebble.Batch{}
	for _, s := range r.Steps {
		g := meta.Owner(w.view, s)
		if batches[g] == nil {
			batches[g] = w.groups[g].NewIndexedBatch()
		}
		ev := meta.NewEval(batches[g], 7, facts{})
		if _, err := ev.Step(s); err != nil {
			return err
		}
		fx, err := ev.Effects()
		if err != nil {
			w.t.Fatal(err)
		}
		for _, d := range fx.Dropped {
			if err := batches[g].Delete(placeKey(d.GetId()), nil); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	for _, b := range batches {
		if err := b.Commit(pebble.NoSync); err != nil {
			w.t.Fatal(err)
		}
	}
	return nil
}

// repair checks and repairs until there is nothing to repair any more, and returns what it did.
func (w *world) repair(o Options) (done []Repair) {
	w.t.Helper()
	for range 10 {
		r, err := Inspect(w.in)
		if err != nil {
			w.t.Fatal(err)
		}
		todo := r.Plan(r.Findings, o)
		if len(todo) == 0 {
			return done
		}
		for _, x := range todo {
			if err := w.carry(x); err != nil {
				w.t.Fatalf("%s %s: %v", x.Code, x.Where(), err)
			}
		}
		done = append(done, todo...)
	}
	w.t.Fatalf("it never ends: %+v", done)
	return nil
}

// TestPlan_TakesEveryDamageAway: but for what somebody has to look at, or what goes by itself.
func TestPlan_TakesEveryDamageAway(t *testing.T) {
	for _, d := range damages {
		t.Run(d.name, func(t *testing.T) {
			w := newWorld(t)
			d.plant(w)
			w.repair(Options{RevertLost: true})
			found, err := Check(w.in)
			if err != nil {
				t.Fatal(err)
			}
			found = slices.DeleteFunc(found, func(f Finding) bool { return handlers[f.Code].do == nil })
			if len(found) > 0 && d.name != "a misplaced inode" && d.name != "a misplaced chunk" {
				t.Errorf("left:%s", list(found))
			}
		})
	}
}

// TestPlan_KeepsDirtyContent: without leave, no repair lets go of an extent that a dirty chunk names.
func TestPlan_KeepsDirtyContent(t *testing.T) {
	for _, d := range damages {
		t.Run(d.name, func(t *testing.T) {
			w := newWorld(t)
			d.plant(w)
			before := w.dirtyExtents()
			for _, r := range w.repair(Options{}) {
				if r.Lost {
					t.Errorf("%s: %s", r.Code, r.Text)
				}
			}
			for id := range before {
				if !w.dirtyExtents()[id] {
					t.Errorf("extent %s went", id)
				}
			}
		})
	}
}

// dirtyExtents are those of dirty chunks that have a place.
func (w *world) dirtyExtents() map[string]bool {
	w.t.Helper()
	out := map[string]bool{}
	for g, db := range w.groups {
		lo, hi := meta.ReplicatedBounds()
		err := meta.Scan(db, lo, hi, func(k, v []byte) (bool, error) {
			c := &record.Chunk{}
			if meta.RowKind(k) != 'x' {
				return true, nil
			}
			if _, err := meta.Get(db, k, c); err != nil {
				return false, err
			}
			for id := range extents(c) {
				ok, err := meta.Get(db, placeKey(id), &record.Placed{})
				if err != nil {
					return false, err
				}
				if ok && c.GetDirty() {
					out[fmt.Sprint(g, " ", id)] = true
				}
			}
			return true, nil
		})
		if err != nil {
			w.t.Fatal(err)
		}
	}
	return out
}

func (w *world) inodeAt(ino objcache.Ino) *record.Inode {
	w.t.Helper()
	in, err := meta.Inode(w.groups[w.view.OwnerOfInode(ino)], ino)
	if err != nil {
		w.t.Fatal(err)
	}
	return in
}

func (w *world) entryAt(dir objcache.Ino, name string) *record.DirEntry {
	w.t.Helper()
	e, err := meta.Entry(w.groups[w.view.OwnerOfInode(dir)], dir, name)
	if err != nil {
		w.t.Fatal(err)
	}
	return e
}

func TestPlan_ANameOfNothingGoesAndItsDirectoryIsListedAgain(t *testing.T) {
	w := newWorld(t)
	w.changeEntry(dirIno, "clean", func(e *record.DirEntry) { e.Debts = []*record.Debt{{Ino: uint64(linkIno), Key: "k"}} })
	w.drop(meta.InodeKey(cleanIno))
	w.repair(Options{})
	if e := w.entryAt(dirIno, "clean"); e.GetIno() != 0 || len(e.GetDebts()) != 1 {
		t.Errorf("the name is %v, want a tombstone with its debt", e)
	}
	if d := w.inodeAt(dirIno).GetDir(); d.GetComplete() || d.GetLoadedAt() != 0 || d.GetChildren() != 2 {
		t.Errorf("the directory says %v", d)
	}
}

// TestPlan_ManyNames: more than one transaction takes, of a directory that lost all its positions and most of its inodes.
func TestPlan_ManyNames(t *testing.T) {
	w := newWorld(t)
	const n = 2 * atMost
	for i := range n {
		ino, name := objcache.Ino(1<<49)+objcache.Ino(i), fmt.Sprintf("many-%d", i)
		w.put(0, meta.EntryKey(dirIno, name), &record.DirEntry{Ino: uint64(ino), Mode: objcache.ModeRegular, Cookie: uint64(i + 4)})
		if i%4 == 0 {
			w.inode(&record.Inode{
				Ino: uint64(ino), Mode: objcache.ModeRegular, Nlink: 1, Bucket: "data",
				Links: []*record.Link{{Dir: uint64(dirIno), Name: name, Key: "d/" + name}},
			})
		}
	}
	for _, r := range w.repair(Options{}) {
		for _, s := range r.Steps {
			if got := len(s.GetRepairRows().GetRows()); got > 5*atMost {
				t.Errorf("%d rows in one step", got)
			}
		}
	}
	expect(t, w, nil)
	if d := w.inodeAt(dirIno).GetDir(); d.GetChildren() != 3+n/4 {
		t.Errorf("%d names are left", d.GetChildren())
	}
}

func TestPlan_ADirtyFileWithoutANameGetsItBack(t *testing.T) {
	w := newWorld(t)
	w.drop(meta.EntryKey(dirIno, "dirty"))
	w.drop(meta.CookieKey(dirIno, 2))
	w.repair(Options{})
	if e := w.entryAt(dirIno, "dirty"); e.GetIno() != uint64(dirtyIno) || e.GetCookie() != 4 {
		t.Errorf("the name is %v", e)
	}
	if in := w.inodeAt(dirtyIno); !in.GetDirty() || len(in.GetLinks()) != 1 {
		t.Errorf("the inode is %v", in)
	}
}

func TestPlan_ADirtyFileWhosePlaceIsTakenGoesToLostAndFound(t *testing.T) {
	w := newWorld(t)
	w.changeEntry(dirIno, "dirty", func(e *record.DirEntry) { e.Ino = uint64(linkIno) })
	w.changeInode(linkIno, func(in *record.Inode) {
		in.Links, in.Nlink = append(in.Links, &record.Link{Dir: uint64(dirIno), Name: "dirty"}), 3
	})
	done := w.repair(Options{})
	name := fmt.Sprintf("lost+found-%d", dirtyIno)
	if e := w.entryAt(bucket, name); e.GetIno() != uint64(dirtyIno) {
		t.Errorf("%s is %v", name, e)
	}
	if !slices.ContainsFunc(done, func(r Repair) bool { return r.Path == "/data/"+name }) {
		t.Errorf("the output does not name it: %+v", done)
	}
}

func TestPlan_ACleanFileWithoutANameGoes(t *testing.T) {
	w := newWorld(t)
	w.drop(meta.EntryKey(dirIno, "clean"))
	w.drop(meta.CookieKey(dirIno, 1))
	w.repair(Options{})
	if in := w.inodeAt(cleanIno); in != nil {
		t.Errorf("the inode is %v", in)
	}
	if w.inodeAt(dirIno).GetDir().GetComplete() {
		t.Error("its directory is not listed again")
	}
}

func TestPlan_AFileWithLostBytesFallsBackWhole(t *testing.T) {
	w := newWorld(t)
	w.changeInode(dirtyIno, func(in *record.Inode) {
		in.Links[0].Key, in.Links[0].Etag, in.Links[0].Version = "d/dirty", "e7", 2
		in.Base = &record.Base{Key: "d/dirty", Etag: "e7", Size: 50, Length: 10, Version: 2}
	})
	w.disk(first).Rotten = map[uint64]string{2: "rot"}
	if done := w.repair(Options{}); len(done) > 0 {
		t.Fatalf("without leave: %+v", done)
	}
	done := w.repair(Options{RevertLost: true})
	if len(done) != 1 || !done[0].Lost || done[0].Path != "/data/d/dirty" {
		t.Errorf("did %+v", done)
	}
	in := w.inodeAt(dirtyIno)
	if in.GetSize() != 50 || in.GetBase().GetLength() != 50 || in.GetDirty() || in.GetVersion() != 4 || in.GetDirtySince() != 0 {
		t.Errorf("the inode is %v", in)
	}
	for _, k := range []objcache.ChunkKey{first, second} {
		c, err := meta.Chunk(w.groups[w.view.OwnerOfChunk(k)], k)
		if err != nil || len(c.GetExtents()) > 0 || c.GetVersion() != 4 {
			t.Errorf("chunk %v is %v, %v: a mix of two versions", k, c, err)
		}
	}
}

func TestPlan_AFileThatWasNeverPersistedGoesWithItsBytes(t *testing.T) {
	w := newWorld(t)
	w.drop(placeKey(2))
	done := w.repair(Options{RevertLost: true})
	if len(done) != 1 || !done[0].Lost || done[0].Path != "/data/d/dirty" {
		t.Errorf("did %+v", done)
	}
	if w.inodeAt(dirtyIno) != nil || w.entryAt(dirIno, "dirty") != nil {
		t.Error("something of it is left")
	}
}

// TestPlan_TheOwnerOfBytesThatTwoNameKeepsThem: letting go of the one must not give the other's bytes away.
func TestPlan_TheOwnerOfBytesThatTwoNameKeepsThem(t *testing.T) {
	w := newWorld(t)
	k := w.chunkWith(linkIno, 1)
	w.put(0, meta.ChunkKey(k), &record.Chunk{Version: 3, Dirty: true, Extents: []*record.Extent{extent(1, 0, 100)}})
	w.repair(Options{RevertLost: true})
	g := w.groups[w.view.OwnerOfChunk(first)]
	lo, _ := group.PlaceBounds()
	if ok, err := meta.Get(g, placeKey(1), &record.Placed{}); err != nil || !ok {
		t.Errorf("the place %x is gone: %v", lo, err)
	}
	if in := w.inodeAt(dirtyIno); in.GetVersion() != 3 {
		t.Error("the owner of the bytes was reverted")
	}
}

// TestPlan_IsRefusedWhenRowsHaveChanged: a repair rests on rows as they were seen, of its own group and of others.
func TestPlan_IsRefusedWhenRowsHaveChanged(t *testing.T) {
	w := newWorld(t)
	in := w.inodeAt(cleanIno)
	w.drop(meta.InodeKey(cleanIno))
	r, err := Inspect(w.in)
	if err != nil {
		t.Fatal(err)
	}
	todo := r.Plan(r.Findings, Options{})
	w.inode(in)
	for _, x := range todo {
		if err := w.carry(x); !errors.Is(err, objcache.Conflict) {
			t.Errorf("%s: %v, want a conflict", x.Text, err)
		}
	}
	expect(t, w, nil)
}

func TestPlan_RefusesRowsThatNoLockGuards(t *testing.T) {
	w := newWorld(t)
	for _, rows := range [][]*rpc.RepairRow{
		{}, {{Key: meta.ViewKey(), After: []byte{}}},
		{{Key: meta.InodeKey(dirIno), Keep: true}, {Key: meta.InodeKey(cleanIno), Keep: true}},
	} {
		err := w.carry(Repair{Steps: []*rpc.Step{{Step: &rpc.Step_RepairRows{RepairRows: &rpc.RepairRows{Group: 1, Rows: rows}}}}})
		if !errors.Is(err, objcache.Invalid) {
			t.Errorf("%v: %v", rows, err)
		}
	}
}
