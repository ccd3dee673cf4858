package meta

import (
	"testing"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/record"
)

// withSub makes a directory d/ with a marker below top.
func withSub(t *testing.T) *rows {
	r := withFile(t)
	r.do(&rpc.PutInode{Inode: pack(&record.Inode{
		Ino: sub, Mode: objcache.ModeDir, Links: []*record.Link{{Dir: top, Name: "d"}}, Dir: &record.DirState{Prefix: "d/", Marker: true, Complete: true},
	})})
	return r
}

func move(from, to string) *rpc.Relink {
	return &rpc.Relink{Ino: sub, DelDir: top, DelName: from, AddDir: top, AddName: to, Now: 1}
}

func TestMoves_EveryPrefixIsOwedUntilItIsCleanedAndTheNameSettled(t *testing.T) {
	r := withSub(t)
	r.do(move("d", "e"))
	r.do(&rpc.EndPersist{Ino: sub, Heading: "e/"})
	r.do(move("e", "f2"))
	r.do(&rpc.EndPersist{Ino: sub, Heading: "f2/"}, &rpc.EndPersist{Ino: sub, Marker: "f2/", Moved: true})
	want := map[[2]string]bool{{"d/", "d"}: true, {"d/", "e"}: true, {"e/", "e"}: true, {"d/", "f2"}: true}
	for _, b := range r.inode(sub).GetTrash() {
		delete(want, [2]string{b.GetKey(), b.GetName()})
	}
	if len(want) > 0 {
		t.Errorf("not owed: %v of %v", want, r.inode(sub).GetTrash())
	}
	r.refuse(objcache.Conflict, &rpc.EndPersist{Ino: sub, TrashSettled: []*rpc.Name{{Dir: top, Name: "d"}}})
	r.do(&rpc.EndPersist{Ino: sub, TrashCleaned: []string{"d/", "e/"}})
	if in := r.inode(sub); !Owes(in) || len(in.GetTrash()) == 0 {
		t.Error("the names are settled already")
	}
	r.do(&rpc.EndPersist{Ino: sub, TrashSettled: []*rpc.Name{{Dir: top, Name: "d"}, {Dir: top, Name: "e"}, {Dir: top, Name: "f2"}}, Table: r.inode(sub).GetDir().GetTableChanges()})
	if in := r.inode(sub); Owes(in) {
		t.Errorf("still owes: %v", in)
	}
}

func TestMoves_ADirectoryThatLeavesThePlaceItCameBackToOwesItAgain(t *testing.T) {
	r := withSub(t)
	r.do(move("d", "e"))
	r.do(move("e", "d"))
	r.do(&rpc.EndPersist{Ino: sub, Marker: "d/", Moved: true})
	r.do(move("d", "g")) // between the look at the trash and the end of its cleaning
	r.do(&rpc.EndPersist{Ino: sub, TrashCleaned: []string{"d/"}})
	r.refuse(objcache.Conflict, &rpc.EndPersist{Ino: sub, TrashSettled: []*rpc.Name{{Dir: top, Name: "d"}}})
}

func TestMoves_ADetourIsOwedUntilItEnds(t *testing.T) {
	r := withSub(t)
	r.do(move("d", "e"))
	r.do(&rpc.EndPersist{Ino: sub, Detour: ".objcache/moving/1/"})
	r.do(&rpc.EndPersist{Ino: sub, Heading: ".objcache/moving/1/"}, &rpc.EndPersist{Ino: sub, Marker: ".objcache/moving/1/", Moved: true})
	r.do(&rpc.EndPersist{Ino: sub, TrashCleaned: []string{"d/"}},
		&rpc.EndPersist{Ino: sub, TrashSettled: []*rpc.Name{{Dir: top, Name: "d"}, {Dir: top, Name: "e"}}, Table: 1})
	if in := r.inode(sub); !Owes(in) || in.GetDir().GetMoving() || len(in.GetTrash()) != 0 {
		t.Errorf("on the detour: %v", in)
	}
	r.do(&rpc.EndPersist{Ino: sub, DetourEnd: true})
	if in := r.inode(sub); !in.GetDir().GetMoving() || in.GetDir().GetDetour() != "" {
		t.Errorf("after the detour: %v", in)
	}
	r.do(&rpc.EndPersist{Ino: sub, Marker: "e/", Moved: true})
	if tr := r.inode(sub).GetTrash(); len(tr) != 1 || tr[0].GetKey() != ".objcache/moving/1/" {
		t.Errorf("the detour is not cleaned: %v", tr)
	}
}

func TestDropLinks_OnlyWhenNoByteIsReadFromThem(t *testing.T) {
	r := withFile(t)
	r.write(1, 0, 100)
	it := r.begin()
	r.refuse(objcache.Conflict, &rpc.EndPersist{Ino: file, DropLinks: true}) // an upload is under way
	r.end(it)
	r.refuse(objcache.Conflict, &rpc.EndPersist{Ino: file, DropLinks: true}) // its bytes are there and nowhere else
	in := r.inode(file)
	r.do(&rpc.FlushInode{Ino: file, Version: in.GetVersion(), Generation: in.GetGeneration(), Truncate: true})
	r.do(&rpc.EndPersist{Ino: file, DropLinks: true})
	in = r.inode(file)
	if len(in.GetTrash()) != 1 || in.GetLinks()[0].GetKey() != "" || !in.GetDirty() {
		t.Errorf("inode %v", in)
	}
	if !InStorage(in, in.GetLinks()[0]) {
		t.Error("an object that is not deleted yet is forgotten by whoever takes the name away")
	}
}

func TestTrash_ANameThatIsLostAgainIsNotSettled(t *testing.T) {
	r := withFile(t)
	r.do(&rpc.PutInode{Inode: pack(&record.Inode{Ino: 77, Trash: []*record.Base{{Key: "a/f", Dir: top, Name: "x"}, {Key: "b/f", Dir: top, Name: "x"}}})})
	n := &rpc.Name{Dir: top, Name: "x"}
	r.refuse(objcache.Conflict, &rpc.EndPersist{Ino: 77, TrashGone: []string{"a/f"}, TrashName: n, TrashLast: true})
	r.do(&rpc.EndPersist{Ino: 77, TrashGone: []string{"a/f"}, TrashName: n})
	r.do(&rpc.EndPersist{Ino: 77, TrashGone: []string{"b/f"}, TrashName: n, TrashLast: true})
	if tr := r.inode(77).GetTrash(); len(tr) != 0 {
		t.Errorf("trash %v", tr)
	}
}

func TestAddEntry_ANewDirectoryKnowsWhereItsParentStands(t *testing.T) {
	r := withSub(t)
	r.refuse(objcache.Conflict, &rpc.AddEntry{Dir: sub, Name: "n", Ino: 5, Mode: objcache.ModeDir, Prefix: "old/"})
	r.do(&rpc.AddEntry{Dir: sub, Name: "n", Ino: 5, Mode: objcache.ModeDir, Prefix: "d/"})
}
