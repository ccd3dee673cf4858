package meta

import (
	"testing"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/record"
)

func TestAddEntry_ANameIsTakenOnce(t *testing.T) {
	r := withFile(t)
	r.refuse(objcache.Exist, &rpc.AddEntry{Dir: top, Name: "f", Ino: 300, Mode: objcache.ModeRegular})
	r.refuse(objcache.Conflict, &rpc.AddEntry{Dir: top, Name: "f", Ino: 300, Expect: 299, Mode: objcache.ModeRegular})
	r.refuse(objcache.NotDir, &rpc.AddEntry{Dir: file, Name: "x", Ino: 300})
	r.refuse(objcache.Conflict, &rpc.RemoveEntry{Dir: top, Name: "f", Expect: 300})
	if d := r.inode(top).GetDir(); d.GetChildren() != 1 {
		t.Errorf("refused steps left something: %v", d)
	}
}

func TestEntries_CountLinksChildrenAndCookies(t *testing.T) {
	r := withFile(t).dir(sub, top, "s")
	r.do(&rpc.AddEntry{Dir: top, Name: "s", Ino: sub, Mode: objcache.ModeDir})
	if in := r.inode(top); in.GetNlink() != 3 || in.GetDir().GetChildren() != 2 {
		t.Errorf("inode %v", in)
	}
	r.do(&rpc.RemoveEntry{Dir: top, Name: "f", Expect: file})
	r.do(&rpc.AddEntry{Dir: top, Name: "f", Ino: 300, Mode: objcache.ModeRegular})
	var names []string
	if err := ScanCookies(r.db, top, 0, func(n string, _ *record.DirEntry) (bool, error) { names = append(names, n); return true, nil }); err != nil {
		t.Fatal(err)
	}
	if len(names) != 2 || names[0] != "s" || names[1] != "f" {
		t.Errorf("order of readdir %q: a name that came back stands at the end", names)
	}
}

func TestRemoveEntry_ATombstoneStaysForADebtOrAListing(t *testing.T) {
	for name, c := range map[string]struct {
		debt    *rpc.Debt
		listing bool
		kept    bool
	}{"nothing": {}, "debt": {debt: &rpc.Debt{Ino: file, Key: "f"}, kept: true}, "listing": {listing: true, kept: true}} {
		t.Run(name, func(t *testing.T) {
			r := withFile(t)
			r.listing = c.listing
			r.do(&rpc.RemoveEntry{Dir: top, Name: "f", Expect: file, Debt: c.debt})
			if row := r.entry(top, "f"); (row != nil) != c.kept || row.GetIno() != 0 {
				t.Errorf("row %v", row)
			}
		})
	}
}

func TestMergePage_IsMergedNeverPasted(t *testing.T) {
	r := withFile(t)
	r.listing = true
	r.do(&rpc.AddEntry{Dir: top, Name: "gone", Ino: 201, Mode: objcache.ModeRegular})
	requested := r.applied
	r.do(&rpc.RemoveEntry{Dir: top, Name: "gone", Expect: 201})
	attrs := func(ino uint64) []byte { return pack(&record.Inode{Ino: ino, Mode: objcache.ModeRegular | 0o644}) }
	r.do(&rpc.MergePage{Dir: top, RequestedAt: requested, Entries: []*rpc.Listed{
		{Name: "f", Etag: "X", Ino: 301, Attributes: attrs(301)}, {Name: "gone", Etag: "X", Ino: 302, Attributes: attrs(302)}, {Name: "new", Etag: "N", Size: 4, Ino: 303, Attributes: attrs(303)},
	}})
	if row := r.entry(top, "f"); row.GetIno() != file || row.GetEtag() != "" {
		t.Errorf("a dirty file was replaced by a listing: %v", row)
	}
	if row := r.entry(top, "gone"); row.GetIno() != 0 {
		t.Errorf("a listing that began before the delete brought a name back: %v", row)
	}
	if row := r.entry(top, "new"); row.GetIno() != 303 || row.GetSize() != 4 || r.inode(303) == nil {
		t.Errorf("new name %v", row)
	}
	r.listing = false
	r.do(&rpc.MergePage{Dir: top, RequestedAt: r.applied, Complete: true, Began: 99})
	if row := r.entry(top, "gone"); row != nil {
		t.Errorf("tombstone %v outlives the listing that began after it", row)
	}
	r.do(&rpc.MergePage{Dir: top, RequestedAt: r.applied, Entries: []*rpc.Listed{{Name: "new"}}})
	if row := r.entry(top, "new"); row != nil {
		t.Errorf("a clean name that vanished is still there: %v", row)
	}
}

func TestFresh_OnlyIfNothingHappenedAndNothingIsOwed(t *testing.T) {
	for _, c := range []struct {
		row  *record.DirEntry
		want bool
	}{
		{nil, true}, {&record.DirEntry{Ino: 1, Changed: 5}, true}, {&record.DirEntry{Ino: 1, Changed: 6}, false},
		{&record.DirEntry{Debts: []*record.Debt{{Ino: 2}}}, false},
	} {
		if got := Fresh(c.row, 5); got != c.want {
			t.Errorf("%v: %v", c.row, got)
		}
	}
}

func TestRefreshBase_AVanishedObjectTakesNoDirtyFileAlong(t *testing.T) {
	r := withFile(t)
	r.write(1, 0, 100)
	r.end(r.begin())
	r.write(2, 0, 10)
	r.refuse(objcache.Conflict, &rpc.RefreshBase{Ino: file, OldEtag: "E", Gone: true}, &rpc.MergePage{Dir: top, RequestedAt: r.applied, Entries: []*rpc.Listed{{Name: "f"}}})
	if r.entry(top, "f").GetIno() != file {
		t.Error("the dirty file lost its name")
	}
}

func TestSettleEntry_APutEndsTheClaimAndNobodyElsesDebt(t *testing.T) {
	r := withFile(t)
	r.do(&rpc.RemoveEntry{Dir: top, Name: "f", Expect: file, Debt: &rpc.Debt{Ino: file, Key: "f", Etag: "old"}})
	r.do(&rpc.AddEntry{Dir: top, Name: "f", Ino: 300, Mode: objcache.ModeRegular})
	r.do(&rpc.ClaimEntry{Dir: top, Name: "f", Ino: 300})
	r.refuse(objcache.Conflict, &rpc.ClaimEntry{Dir: top, Name: "f", Ino: file})
	r.refuse(objcache.Conflict, &rpc.ClaimEntry{Dir: top, Name: "f", Ino: 999})
	r.do(&rpc.SettleEntry{Dir: top, Name: "f", Ino: 300, Key: "f", Etag: "new"})
	if row := r.entry(top, "f"); len(row.GetDebts()) != 1 || row.GetBusy() != 0 || row.GetEtag() != "new" {
		t.Errorf("row %v", row)
	}
	r.do(&rpc.ClaimEntry{Dir: top, Name: "f", Ino: file})
	r.do(&rpc.SettleEntry{Dir: top, Name: "f", Ino: file, Gone: true, Release: true})
	if row := r.entry(top, "f"); len(row.GetDebts()) != 1 || row.GetBusy() != 0 || row.GetEtag() != "new" {
		t.Errorf("after the first of several objects of the name: row %v", row)
	}
	r.do(&rpc.SettleEntry{Dir: top, Name: "f", Ino: file, Gone: true})
	if row := r.entry(top, "f"); len(row.GetDebts()) != 0 || row.GetIno() != 300 {
		t.Errorf("after the last: row %v", row)
	}
}

func TestKillDir_OnlyAnEmptyAndLoadedDirectoryDies(t *testing.T) {
	r := withFile(t)
	r.refuse(objcache.NotEmpty, &rpc.KillDir{Ino: top})
	r.do(&rpc.PutInode{Inode: pack(&record.Inode{Ino: sub, Mode: objcache.ModeDir, Dir: &record.DirState{}})})
	r.refuse(objcache.Conflict, &rpc.KillDir{Ino: sub})
	r.listing = true
	r.do(&rpc.RemoveEntry{Dir: top, Name: "f", Expect: file})
	r.do(&rpc.KillDir{Ino: top})
	r.refuse(objcache.NotExist, &rpc.AddEntry{Dir: top, Name: "x", Ino: 5})
	r.do(&rpc.Forget{Ino: top})
	if r.inode(top) != nil || r.entry(top, "f") != nil {
		t.Error("rows of a finished directory are left")
	}
}

func TestRelink_AnOpenFileOutlivesItsNameUntilItIsForgotten(t *testing.T) {
	r := withFile(t)
	r.write(1, 0, 100)
	r.open[file] = true
	r.do(&rpc.RemoveEntry{Dir: top, Name: "f", Expect: file}, &rpc.Relink{Ino: file, DelDir: top, DelName: "f"})
	if in := r.inode(file); !in.GetOrphan() || in.GetNlink() != 0 || in.GetDirty() || len(r.chunk(file).GetExtents()) != 1 {
		t.Errorf("inode %v", in)
	}
	r.refuse(objcache.Conflict, &rpc.Forget{Ino: file})
	delete(r.open, file)
	r.do(&rpc.Forget{Ino: file})
	if r.inode(file) != nil || r.chunk(file) != nil || len(r.fx.Dropped) != 1 {
		t.Error("rows of a closed orphan are left")
	}
}

func TestRelink_RefusesAPlanThatAnUploadHasOvertaken(t *testing.T) {
	r := withFile(t)
	r.write(1, 0, 100)
	r.end(r.begin())
	r.refuse(objcache.Conflict, &rpc.Relink{Ino: file, DelDir: top, DelName: "f"})
	r.refuse(objcache.Conflict, &rpc.Relink{Ino: file, DelDir: top, DelName: "nix"})
}

func TestCheckParent_RefusesADirectoryThatMoved(t *testing.T) {
	r := withFile(t).dir(sub, top, "s")
	r.do(&rpc.CheckParent{Ino: sub, Dir: top, Name: "s"})
	r.do(&rpc.Relink{Ino: sub, DelDir: top, DelName: "s", AddDir: 7, AddName: "t"})
	r.refuse(objcache.Conflict, &rpc.CheckParent{Ino: sub, Dir: top, Name: "s"})
	r.do(&rpc.KillDir{Ino: sub})
	r.refuse(objcache.NotExist, &rpc.CheckParent{Ino: sub, Dir: 7, Name: "t"})
}

func TestSetInode_BoundsExtendedAttributes(t *testing.T) {
	r := withFile(t)
	set := func(flags uint32, n int) *rpc.SetInode {
		return &rpc.SetInode{Ino: file, Xattr: &rpc.XattrRequest{Verb: rpc.XattrRequest_SET, Name: "user.a", Value: make([]byte, n), Flags: flags}}
	}
	r.refuse(objcache.NoAttr, set(2, 1))
	r.do(set(1, 1))
	r.refuse(objcache.Exist, set(1, 1))
	r.refuse(objcache.NoSpace, set(0, 4000))
	r.do(&rpc.SetInode{Ino: file, Xattr: &rpc.XattrRequest{Verb: rpc.XattrRequest_REMOVE, Name: "user.a"}})
	if len(r.inode(file).GetXattrs()) != 0 {
		t.Error("the attribute is still there")
	}
}
