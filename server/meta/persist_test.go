package meta

import (
	"testing"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
)

func TestPersist_LeavesNothingOwedAndTheChunkClean(t *testing.T) {
	r := withFile(t)
	r.write(1, 0, 100)
	r.end(r.begin())
	in := r.inode(file)
	if Owes(in) || in.GetDirtySince() != 0 || in.GetBase().GetEtag() != "E" {
		t.Errorf("inode %v", in)
	}
	if c := r.chunk(file); c.GetDirty() || len(c.GetExtents()) != 0 || len(r.fx.Cleaned) != 1 {
		t.Errorf("chunk %v, cleaned %v", c, r.fx.Cleaned)
	}
	if row := r.entry(top, "f"); row.GetEtag() != "E" || row.GetBusy() != 0 {
		t.Errorf("entry %v", row)
	}
}

func TestPersist_AWriteDuringAnUploadStaysDirty(t *testing.T) {
	r := withFile(t)
	r.write(1, 0, 100)
	it := r.begin()
	id := r.write(2, 0, 100)
	if len(r.fx.Dropped) != 0 {
		t.Error("the pinned extent was dropped")
	}
	r.end(it)
	if in := r.inode(file); !in.GetDirty() || in.GetIntent() != nil || in.GetBase().GetVersion() != 2 {
		t.Errorf("inode %v", in)
	}
	if c := r.chunk(file); !c.GetDirty() || len(c.GetExtents()) != 1 || c.GetExtents()[0].GetId() != id || len(c.GetPins()) != 0 {
		t.Errorf("chunk %v", c)
	}
}

func TestPersist_ATruncationDuringAnUploadBoundsTheNewBase(t *testing.T) {
	r := withFile(t)
	r.write(1, 0, 100)
	it := r.begin()
	for _, size := range []int64{40, 90} {
		in := r.inode(file)
		r.do(&rpc.FlushInode{Ino: file, Version: in.GetVersion(), Generation: in.GetGeneration(), Size: size, Truncate: true},
			&rpc.CutChunks{Ino: file, Cut: size, OldSize: in.GetSize(), Version: in.GetVersion() + 1})
	}
	r.end(it)
	if in := r.inode(file); in.GetBase().GetLength() != 40 || in.GetBase().GetSize() != 100 || !in.GetDirty() {
		t.Errorf("inode %v", in)
	}
}

func TestPersist_ARenameDuringAnUploadOwesTheOldKey(t *testing.T) {
	r := withFile(t)
	r.write(1, 0, 100)
	it := r.begin()
	r.do(&rpc.RemoveEntry{Dir: top, Name: "f", Expect: file, Debt: &rpc.Debt{Ino: file}}, &rpc.AddEntry{Dir: top, Name: "g", Ino: file, Mode: objcache.ModeRegular},
		&rpc.Relink{Ino: file, DelDir: top, DelName: "f", AddDir: top, AddName: "g", Owed: &rpc.Debt{Ino: file}})
	r.end(it)
	if d := r.entry(top, "f").GetDebts(); len(d) != 1 || d[0].GetKey() != "f" || d[0].GetEtag() != "E" {
		t.Errorf("the object just written under the old name is owed by nobody: %v", d)
	}
	if in := r.inode(file); len(in.GetTrash()) != 1 || in.GetTrash()[0].GetKey() != "f" || !in.GetDirty() {
		t.Errorf("inode %v", in)
	}
	r.do(&rpc.EndPersist{Ino: file, TrashGone: []string{"f"}, TrashName: &rpc.Name{Dir: top, Name: "f"}, TrashLast: true}, &rpc.SettleEntry{Dir: top, Name: "f", Ino: file, Gone: true})
	if row := r.entry(top, "f"); row != nil {
		t.Errorf("tombstone %v protects nothing", row)
	}
}

// The rename was planned while the upload was under way, and comes behind its end: the directory would never learn the ETag of the object it is owed.
func TestPersist_ARenamePlannedBeforeTheEndOfAnUploadIsRefusedAfterIt(t *testing.T) {
	r := withFile(t)
	r.write(1, 0, 100)
	it := r.begin()
	r.end(it)
	r.refuse(objcache.Conflict, &rpc.Relink{Ino: file, DelDir: top, DelName: "f", AddDir: top, AddName: "g", Owed: &rpc.Debt{Ino: file}})
	r.refuse(objcache.Conflict, &rpc.Relink{Ino: file, DelDir: top, DelName: "f", AddDir: top, AddName: "g", Owed: &rpc.Debt{Ino: file, Key: "f", Etag: "D"}})
	owed := &rpc.Debt{Ino: file, Key: "f", Etag: "E"}
	r.do(&rpc.RemoveEntry{Dir: top, Name: "f", Expect: file, Debt: owed}, &rpc.Relink{Ino: file, DelDir: top, DelName: "f", Owed: owed})
}

// An upload is given up as if the name had no object; but the name was lost while that was decided, and the object that stood there before is owed now.
func TestPersist_GivingUpDoesNotSettleWhatANameLostMeanwhileOwes(t *testing.T) {
	r := withFile(t)
	r.write(1, 0, 100)
	r.end(r.begin())
	r.write(2, 0, 10)
	it := r.begin()
	owed := &rpc.Debt{Ino: file, Key: "f", Etag: "E"}
	r.do(&rpc.RemoveEntry{Dir: top, Name: "f", Expect: file, Debt: owed}, &rpc.Relink{Ino: file, DelDir: top, DelName: "f", Owed: owed})
	r.refuse(objcache.Conflict, &rpc.EndPersist{Ino: file, Version: it.GetVersion(), TrashName: &rpc.Name{Dir: top, Name: "f"}, TrashLast: true})
	r.do(&rpc.EndPersist{Ino: file, Version: it.GetVersion()}, &rpc.SettleEntry{Dir: top, Name: "f", Ino: file, Key: "f", Etag: "E"})
	if d := r.entry(top, "f").GetDebts(); len(d) != 1 || d[0].GetKey() != "f" {
		t.Errorf("nobody owes the deletion of the object: %v", d)
	}
}

func TestPersist_AnUnlinkDuringAnUploadKeepsThePinnedBytes(t *testing.T) {
	r := withFile(t)
	r.write(1, 0, 100)
	it := r.begin()
	r.do(&rpc.RemoveEntry{Dir: top, Name: "f", Expect: file, Debt: &rpc.Debt{Ino: file}}, &rpc.Relink{Ino: file, DelDir: top, DelName: "f", Owed: &rpc.Debt{Ino: file}})
	if c := r.chunk(file); len(c.GetPins()) != 1 || len(r.fx.Dropped) != 0 {
		t.Fatalf("the upload would send zeros: chunk %v, dropped %v", c, r.fx.Dropped)
	}
	r.end(it)
	if in := r.inode(file); !in.GetDead() || len(in.GetTrash()) != 1 {
		t.Errorf("inode %v", in)
	}
	r.refuse(objcache.Conflict, &rpc.Forget{Ino: file})
	r.do(&rpc.EndPersist{Ino: file, TrashGone: []string{"f"}, TrashName: &rpc.Name{Dir: top, Name: "f"}, TrashLast: true}, &rpc.CutChunks{Ino: file, OldSize: 100}, &rpc.Forget{Ino: file})
	if r.inode(file) != nil || r.chunk(file) != nil {
		t.Error("rows of a finished file are left")
	}
}

func TestPersist_IsRefusedAtAnotherVersionAndBesideAnother(t *testing.T) {
	r := withFile(t)
	r.write(1, 0, 100)
	r.refuse(objcache.Conflict, &rpc.BeginPersist{Ino: file, Version: 1, Intent: nil})
	it := r.begin()
	r.refuse(objcache.Conflict, &rpc.BeginPersist{Ino: file, Version: 2, Intent: pack(&it2)})
	r.write(2, 0, 10)
	r.refuse(objcache.Conflict, &rpc.PinChunk{Ino: file, Version: it.GetVersion()})
}

func TestPersist_OfManyChunksKeepsItsIntentToTheLast(t *testing.T) {
	r := withFile(t)
	r.write(1, 0, 100)
	it := r.begin()
	r.do(&rpc.EndPersist{Ino: file, Done: true, More: true, Version: it.GetVersion(), Link: pack(&linkF), Base: pack(&baseF)})
	if in := r.inode(file); in.GetIntent() == nil || !Owes(in) || in.GetBase().GetKey() != "f" {
		t.Errorf("inode %v", in)
	}
	r.do(&rpc.UnpinChunk{Ino: file, Version: it.GetVersion(), Done: true, Etag: "E", Len: 100})
	r.do(&rpc.EndPersist{Ino: file, Version: it.GetVersion()})
	if in := r.inode(file); Owes(in) {
		t.Errorf("inode %v", in)
	}
}
