package fsck_test

import (
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/protobuf/proto"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/external"
	"github.com/objcache/objcache/server/fsck"
	"github.com/objcache/objcache/server/group"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
	"github.com/objcache/objcache/server/ring"
)

// The cluster of the tests: bucket b with a directory d in it, and in that a file f of one chunk, uploaded.
const (
	top, dir, file = objcache.Ino(5), objcache.Ino(100), objcache.Ino(101)
	extentID       = 9
)

type world struct {
	t       *testing.T
	dbs     map[objcache.GroupID]*pebble.DB
	cluster fsck.Cluster
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dbs: map[objcache.GroupID]*pebble.DB{}}
	var members []ring.Member
	for g := objcache.GroupID(1); g <= 2; g++ {
		db, err := pebble.Open("rows", &pebble.Options{FS: vfs.NewMem()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
		w.dbs[g] = db
		w.cluster.Groups = append(w.cluster.Groups, fsck.Group{ID: g, Rows: db})
		members = append(members, ring.Member{Group: g, Name: string(rune('a' + g)), Address: "x", Weight: 1})
	}
	v, err := ring.New(objcache.ViewVersion{Epoch: 1, Version: 1}, members)
	if err != nil {
		t.Fatal(err)
	}
	w.cluster.View, w.cluster.Quiet = v, true
	w.cluster.Objects = map[string]map[string]external.Object{"b": {"d/": {}, "d/f": {ETag: "e", Size: 10}}}
	w.inode(directory(top, objcache.RootIno, "b", 1, 3), nil)
	w.inode(directory(dir, top, "d", 1, 2), nil)
	w.inode(regular(), nil)
	w.entry(top, "d", &record.DirEntry{Ino: uint64(dir), Mode: objcache.ModeDir, Cookie: 1})
	w.entry(dir, "f", &record.DirEntry{Ino: uint64(file), Mode: objcache.ModeRegular, Cookie: 1})
	return w
}

func directory(ino, parent objcache.Ino, name string, children uint64, nlink uint32) *record.Inode {
	in := &record.Inode{Ino: uint64(ino), Mode: objcache.ModeDir | 0o755, Nlink: nlink, Bucket: "b", Dir: &record.DirState{Children: children, Complete: true},
		Links: []*record.Link{{Dir: uint64(parent), Name: name}}}
	if ino == dir {
		in.Dir.Prefix = "d/"
	}
	return in
}

func regular() *record.Inode {
	return &record.Inode{Ino: uint64(file), Mode: objcache.ModeRegular | 0o600, Nlink: 1, Size: 10, Bucket: "b", Version: 3,
		Links: []*record.Link{{Dir: uint64(dir), Name: "f", Key: "d/f", Etag: "e", Version: 3}}}
}

func (w *world) put(g objcache.GroupID, key []byte, m proto.Message) {
	w.t.Helper()
	var v []byte
	if m != nil {
		var err error
		if v, err = proto.Marshal(m); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := w.dbs[g].Set(key, v, nil); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) inode(in *record.Inode, change func(*record.Inode)) {
	w.t.Helper()
	if change != nil {
		change(in)
	}
	ino := objcache.Ino(in.GetIno())
	w.put(w.cluster.View.OwnerOfInode(ino), meta.InodeKey(ino), in)
}

func (w *world) entry(d objcache.Ino, name string, e *record.DirEntry) {
	w.t.Helper()
	g := w.cluster.View.OwnerOfInode(d)
	w.put(g, meta.EntryKey(d, name), e)
	if e.GetIno() != 0 {
		if err := w.dbs[g].Set(meta.CookieKey(d, e.GetCookie()), []byte(name), nil); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) chunk(c *record.Chunk) objcache.GroupID {
	w.t.Helper()
	k := objcache.ChunkKey{Ino: file}
	g := w.cluster.View.OwnerOfChunk(k)
	w.put(g, meta.ChunkKey(k), c)
	return g
}

func (w *world) strayChunk(c *record.Chunk) {
	w.t.Helper()
	k := objcache.ChunkKey{Ino: 44}
	w.put(w.cluster.View.OwnerOfChunk(k), meta.ChunkKey(k), c)
}

func (w *world) place(g objcache.GroupID, id byte) {
	w.t.Helper()
	lower, _ := group.PlaceBounds()
	w.put(g, append(lower, 0, 0, 0, 0, 0, 0, 0, id), &record.Placed{Id: uint64(id)})
}

func extent(off, n int64) *record.Extent {
	return &record.Extent{Id: extentID, Start: off, Len: n, VisibleOff: off, VisibleLen: n}
}

func TestCheck_ASoundClusterHasNoFindings(t *testing.T) {
	w := newWorld(t)
	found, err := fsck.Check(w.cluster)
	if err != nil || len(found) > 0 {
		t.Errorf("%+v, %v", found, err)
	}
}

func TestCheck_EveryKindOfDamageIsNamed(t *testing.T) {
	tx := &record.TxID{Client: 1, Seq: 2, TxSeq: 3}
	for code, damage := range map[fsck.Code]func(w *world){
		"row-corrupt": func(w *world) {
			if err := w.dbs[1].Set(meta.InodeKey(77), []byte{0xff}, nil); err != nil {
				w.t.Fatal(err)
			}
		},
		"row-twice": func(w *world) {
			w.put(1, meta.InodeKey(file), regular())
			w.put(2, meta.InodeKey(file), regular())
		},
		"row-misplaced":       func(w *world) { w.put(3-w.cluster.View.OwnerOfInode(dir), meta.EntryKey(dir, "f"), &record.DirEntry{}) },
		"group-not-read":      func(w *world) { w.cluster.Groups = w.cluster.Groups[:1] },
		"entry-without-inode": func(w *world) { w.entry(dir, "g", &record.DirEntry{Ino: 55, Mode: objcache.ModeRegular, Cookie: 2}) },
		"entry-of-dead-inode": func(w *world) { w.inode(regular(), func(in *record.Inode) { in.Dead = true }) },
		"entry-without-dir":   func(w *world) { w.entry(300, "g", &record.DirEntry{Ino: uint64(file), Mode: objcache.ModeRegular}) },
		"entry-not-a-link": func(w *world) {
			w.entry(dir, "g", &record.DirEntry{Ino: uint64(file), Mode: objcache.ModeRegular, Cookie: 2})
		},
		"entry-type": func(w *world) {
			w.entry(dir, "f", &record.DirEntry{Ino: uint64(file), Mode: objcache.ModeSymlink, Cookie: 1})
		},
		"link-without-entry": func(w *world) { w.entry(dir, "f", &record.DirEntry{}) },
		"link-count":         func(w *world) { w.inode(regular(), func(in *record.Inode) { in.Nlink = 2 }) },
		"child-count":        func(w *world) { w.inode(directory(dir, top, "d", 4, 2), nil) },
		"cookie":             func(w *world) { w.put(w.cluster.View.OwnerOfInode(dir), meta.CookieKey(dir, 8), nil) },
		"inode-without-name": func(w *world) { w.inode(regular(), func(in *record.Inode) { in.Links = nil }) },
		"dir-circle":         func(w *world) { w.inode(directory(top, dir, "b", 1, 3), nil) },
		"tombstone-left": func(w *world) {
			w.entry(dir, "gone", &record.DirEntry{Debts: []*record.Debt{{Ino: uint64(file)}}})
		},
		"debt-without-debtor": func(w *world) { w.entry(dir, "gone", &record.DirEntry{Debts: []*record.Debt{{Ino: 66}}}) },
		"owing-not-listed":    func(w *world) { w.inode(regular(), func(in *record.Inode) { in.Dirty = true }) },
		"owing-listed":        func(w *world) { w.put(w.cluster.View.OwnerOfInode(file), meta.DirtyKey(4, file), nil) },
		"owing-left": func(w *world) {
			w.inode(regular(), func(in *record.Inode) { in.Dirty, in.DirtySince = true, 4 })
			w.put(w.cluster.View.OwnerOfInode(file), meta.DirtyKey(4, file), nil)
		},
		"intent-left": func(w *world) { w.inode(regular(), func(in *record.Inode) { in.Intent = &record.Intent{} }) },
		"claim-left": func(w *world) {
			w.entry(dir, "f", &record.DirEntry{Ino: uint64(file), Mode: objcache.ModeRegular, Cookie: 1, Busy: uint64(file)})
		},
		"claim-without-holder": func(w *world) {
			w.entry(dir, "f", &record.DirEntry{Ino: uint64(file), Mode: objcache.ModeRegular, Cookie: 1, Busy: 55})
		},
		"pin-without-intent":   func(w *world) { w.chunk(&record.Chunk{Pins: []*record.Pin{{Version: 3}}}) },
		"promise-left":         func(w *world) { w.put(1, meta.PreparedKey(tx), &record.Prepared{Tx: tx, Coordinator: 2}) },
		"decision-left":        func(w *world) { w.put(1, meta.DecisionKey(tx), &record.Decision{Tx: tx}) },
		"extent-without-place": func(w *world) { w.chunk(&record.Chunk{Extents: []*record.Extent{extent(0, 10)}}) },
		"extent-overlap":       func(w *world) { w.chunk(&record.Chunk{Extents: []*record.Extent{extent(0, 10), extent(5, 10)}}) },
		"extent-range": func(w *world) {
			x := extent(0, 10)
			x.VisibleLen = 11
			w.chunk(&record.Chunk{Extents: []*record.Extent{x}})
		},
		"place-without-extent": func(w *world) { w.place(1, extentID) },
		"chunk-row-left":       func(w *world) { w.strayChunk(&record.Chunk{}) },
		"chunk-without-inode":  func(w *world) { w.strayChunk(&record.Chunk{Extents: []*record.Extent{extent(0, 10)}}) },
		"extent-twice": func(w *world) {
			w.strayChunk(&record.Chunk{Extents: []*record.Extent{extent(0, 10)}})
			w.put(w.cluster.View.OwnerOfChunk(objcache.ChunkKey{Ino: 44}), meta.ChunkKey(objcache.ChunkKey{Ino: 45}), &record.Chunk{Extents: []*record.Extent{extent(0, 10)}})
		},
		"group-unknown": func(w *world) {
			w.cluster.Groups = append(w.cluster.Groups, fsck.Group{ID: 3, Rows: w.dbs[1]})
		},
		"chunk-newer-than-file": func(w *world) { w.chunk(&record.Chunk{Version: 4}) },
		"chunk-dirty": func(w *world) {
			w.place(w.chunk(&record.Chunk{Dirty: true, Extents: []*record.Extent{extent(0, 10)}}), extentID)
		},
		"object-missing":  func(w *world) { delete(w.cluster.Objects["b"], "d/f") },
		"object-other":    func(w *world) { w.cluster.Objects["b"]["d/f"] = external.Object{ETag: "other", Size: 10} },
		"object-nameless": func(w *world) { w.cluster.Objects["b"]["d/g"] = external.Object{} },
	} {
		t.Run(string(code), func(t *testing.T) {
			w := newWorld(t)
			damage(w)
			found, err := fsck.Check(w.cluster)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range found {
				if f.Code == code {
					return
				}
			}
			t.Errorf("not found; found %+v", found)
		})
	}
}

// A transaction whose coordinator has decided is over, also where a participant has only promised.
func TestCheck_AParticipantThatHasNotHeardOfACommitIsNoDamage(t *testing.T) {
	w := newWorld(t)
	w.cluster.Quiet, w.cluster.Objects = false, nil
	tx := &record.TxID{Client: 1, Seq: 2, TxSeq: 3}
	g := w.cluster.View.OwnerOfInode(file)
	renamed := regular()
	renamed.Links[0].Name = "g"
	v, err := proto.Marshal(renamed)
	if err != nil {
		t.Fatal(err)
	}
	own := w.cluster.View.OwnerOfInode(dir)
	w.entry(dir, "f", &record.DirEntry{})
	if err := w.dbs[own].Delete(meta.CookieKey(dir, 1), nil); err != nil {
		t.Fatal(err)
	}
	w.entry(dir, "g", &record.DirEntry{Ino: uint64(file), Mode: objcache.ModeRegular, Cookie: 2})
	w.put(own, meta.DecisionKey(tx), &record.Decision{Tx: tx, Participants: []uint32{uint32(g)}})
	w.put(g, meta.PreparedKey(tx), &record.Prepared{Tx: tx, Coordinator: uint32(own), Rows: []*record.Row{{Key: meta.InodeKey(file), Value: v}}})
	found, err := fsck.Check(w.cluster)
	if err != nil || len(found) > 0 {
		t.Errorf("%+v, %v", found, err)
	}
}
