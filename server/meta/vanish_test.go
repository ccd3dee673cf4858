package meta

import (
	"testing"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/record"
)

// listedDir makes directory sub in directory top, as a listing at time 7 showed it and another one did not any more.
func listedDir(t *testing.T, change func(*record.Inode)) *rows {
	r := newRows(t).dir(top, 1, "b")
	in := &record.Inode{
		Ino: sub, Mode: objcache.ModeDir | 0o755, Nlink: 2, Version: 1, Dir: &record.DirState{Complete: true, LoadedAt: 7}, Links: []*record.Link{{Dir: top, Name: "d"}},
	}
	change(in)
	r.do(&rpc.AddEntry{Dir: top, Name: "d", Ino: sub, Mode: objcache.ModeDir, Now: 5}, &rpc.PutInode{Inode: pack(in)})
	return r
}

func vanish(loadedAt int64) []any {
	return []any{&rpc.RemoveEntry{Dir: top, Name: "d", Expect: sub}, &rpc.VanishDir{Ino: sub, Dir: top, Name: "d", LoadedAt: loadedAt}}
}

func TestVanishDir_OnlyWhatOwesNothingAndHoldsNothing(t *testing.T) {
	for name, change := range map[string]func(*record.Inode){
		"dirty":                  func(in *record.Inode) { in.Dirty = true },
		"chmod not written yet":  func(in *record.Inode) { in.AttrDirty = true },
		"moving":                 func(in *record.Inode) { in.Dir.Moving = true },
		"not loaded":             func(in *record.Inode) { in.Dir.Complete = false },
		"an entry":               func(in *record.Inode) { in.Dir.Children = 1 },
		"an object of its own":   func(in *record.Inode) { in.Dir.Marker = true },
		"listed again meanwhile": func(in *record.Inode) { in.Dir.LoadedAt = 8 },
		"another name":           func(in *record.Inode) { in.Links[0].Name = "e" },
	} {
		t.Run(name, func(t *testing.T) {
			r := listedDir(t, change)
			r.refuse(objcache.Conflict, vanish(7)...)
			if r.inode(sub) == nil || r.entry(top, "d").GetIno() != sub {
				t.Error("half of it is gone")
			}
		})
	}
	r := listedDir(t, func(*record.Inode) {})
	r.do(vanish(7)...)
	if r.inode(sub) != nil || r.entry(top, "d") != nil || r.inode(top).GetDir().GetChildren() != 0 {
		t.Error("something is left")
	}
}

func TestVanishDir_WaitsForObjectsThatAreStillToBeDeleted(t *testing.T) {
	r := listedDir(t, func(*record.Inode) {})
	r.do(&rpc.AddEntry{Dir: sub, Name: "x", Ino: file, Mode: objcache.ModeRegular})
	r.do(&rpc.RemoveEntry{Dir: sub, Name: "x", Expect: file, Debt: &rpc.Debt{Ino: file, Key: "d/x"}})
	r.refuse(objcache.Conflict, vanish(7)...)
	r.do(&rpc.SettleEntry{Dir: sub, Name: "x", Ino: file, Gone: true})
	r.do(&rpc.EndPersist{Ino: sub, Table: r.inode(sub).GetDir().GetTableChanges()})
	r.do(vanish(7)...)
}

func TestMergePage_TakesALaterWordOfTheObjectOnly(t *testing.T) {
	for _, c := range []struct {
		name      string
		ctime     int64
		attrDirty bool
		defaults  bool
		want      uint32
	}{
		{"older", 4, false, false, 0o644}, {"later", 6, false, false, 0o600}, {"later than a chmod that no table has yet", 6, true, false, 0o644},
		{"older, and nobody has said anything", 4, false, true, 0o600},
	} {
		r := newRows(t).dir(top, 1, "b")
		in := &record.Inode{
			Ino: file, Mode: objcache.ModeRegular | 0o644, Nlink: 1, Version: 1, Ctime: 5, AttrDirty: c.attrDirty, DefaultAttrs: c.defaults,
			Base: &record.Base{Key: "f", Etag: "E"}, Links: []*record.Link{{Dir: top, Name: "f", Key: "f", Etag: "E", Version: 1}},
		}
		r.do(&rpc.PutInode{Inode: pack(in)})
		r.do(&rpc.RefreshBase{Ino: file, OldEtag: "E", Attributes: pack(&record.Inode{Mode: objcache.ModeRegular | 0o600, Ctime: c.ctime})})
		if got := r.inode(file); got.GetMode() != objcache.ModeRegular|c.want || got.GetVersion() != 1 {
			t.Errorf("%s: mode %o, version %d", c.name, got.GetMode(), got.GetVersion())
		}
	}
}
