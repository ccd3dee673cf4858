package fsck

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/filelock"
	"github.com/objcache/objcache/server/external"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
	"github.com/objcache/objcache/server/ring"
)

// want is a finding that damage must make.
type want struct {
	code Code
	path string
}

var (
	first  = objcache.ChunkKey{Ino: dirtyIno}
	second = objcache.ChunkKey{Ino: dirtyIno, Index: 1}
)

func dead(in *record.Inode) {
	in.Dead, in.DirtySince = true, 9
}

// damages plants each kind of damage.
var damages = []struct {
	name  string
	plant func(w *world)
	want  []want
}{
	{"a name of an inode that has no row", func(w *world) { w.drop(meta.InodeKey(cleanIno)) }, []want{{entryDangling, "/data/d/clean"}}},
	{"a name of an inode that is gone", func(w *world) {
		w.changeInode(cleanIno, dead)
		w.set(w.view.OwnerOfInode(cleanIno), meta.DirtyKey(9, cleanIno), nil)
	}, []want{{entryOfDead, "/data/d/clean"}}},
	{"names in a directory that has no row", func(w *world) { w.drop(meta.InodeKey(dirIno)) },
		[]want{{entryDangling, "/data/d"}, {entryNoDir, "?"}, {linkCount, "/data"}}},
	{"a name that its inode does not know", func(w *world) {
		w.changeInode(linkIno, func(in *record.Inode) { in.Links, in.Nlink = in.Links[:1], 1 })
	}, []want{{entryUnlinked, "/data/d/link"}}},
	{"a name of another type", func(w *world) {
		w.changeEntry(dirIno, "clean", func(e *record.DirEntry) { e.Mode = objcache.ModeSymlink })
	}, []want{{entryType, "/data/d/clean"}}},
	{"an inode whose name is not there", func(w *world) {
		w.drop(meta.EntryKey(dirIno, "link"))
		w.drop(meta.CookieKey(dirIno, 3))
		w.changeInode(dirIno, func(in *record.Inode) { in.Dir.Children = 2 })
	}, []want{{linkDangling, "/data/d/link"}}},
	{"a wrong number of links of a file", func(w *world) {
		w.changeInode(linkIno, func(in *record.Inode) { in.Nlink = 5 })
	}, []want{{linkCount, "/data/link"}}},
	{"a wrong number of links of a directory", func(w *world) {
		w.changeInode(bucket, func(in *record.Inode) { in.Nlink = 2 })
	}, []want{{linkCount, "/data"}}},
	{"a wrong number of names", func(w *world) {
		w.changeInode(dirIno, func(in *record.Inode) { in.Dir.Children = 4 })
	}, []want{{childCount, "/data/d"}}},
	{"a directory that counts names and has none", func(w *world) {
		w.inode(&record.Inode{Ino: uint64(noIno), Mode: objcache.ModeDir, Nlink: 2, Bucket: "data", Dir: &record.DirState{Prefix: "e/", Children: 1},
			Links: []*record.Link{{Dir: uint64(bucket), Name: "e"}}})
		w.entry(bucket, "e", noIno, objcache.ModeDir, 3)
		w.changeInode(bucket, func(in *record.Inode) { in.Nlink, in.Dir.Children = 4, 3 })
	}, []want{{childCount, "/data/e"}}},
	{"a name without a position", func(w *world) { w.drop(meta.CookieKey(dirIno, 1)) }, []want{{cookieWrong, "/data/d/clean"}}},
	{"a position of no name", func(w *world) { w.set(0, meta.CookieKey(dirIno, 9), []byte("none")) }, []want{{cookieWrong, "/data/d/none"}}},
	{"an inode without a name", func(w *world) {
		w.inode(&record.Inode{Ino: uint64(noIno), Mode: objcache.ModeRegular, Bucket: "data"})
	}, []want{{inodeNameless, "?"}}},
	{"a directory below itself", func(w *world) {
		w.inode(&record.Inode{Ino: uint64(noIno), Mode: objcache.ModeDir, Nlink: 3, Bucket: "data", Dir: &record.DirState{Prefix: "x/", Children: 1},
			Links: []*record.Link{{Dir: uint64(noIno), Name: "x"}}})
		w.entry(noIno, "x", noIno, objcache.ModeDir, 1)
	}, []want{{dirCircle, circular}}},
	{"a tombstone although all is settled", func(w *world) {
		w.quiet()
		w.put(0, meta.EntryKey(dirIno, "gone"), &record.DirEntry{Debts: []*record.Debt{{Ino: uint64(cleanIno), Key: "d/gone"}}})
	}, []want{{tombstoneLeft, "/data/d/gone"}}},
	{"a debt of nobody", func(w *world) {
		w.put(0, meta.EntryKey(dirIno, "gone"), &record.DirEntry{Debts: []*record.Debt{{Ino: uint64(noIno), Key: "d/gone"}}})
	}, []want{{debtOrphaned, "/data/d/gone"}}},
	{"a claim of nobody", func(w *world) {
		w.changeEntry(dirIno, "clean", func(e *record.DirEntry) { e.Busy = uint64(noIno) })
	}, []want{{claimOrphaned, "/data/d/clean"}}},
	{"a claim of an inode that has another name", func(w *world) {
		w.changeEntry(dirIno, "clean", func(e *record.DirEntry) { e.Busy = uint64(dirtyIno) })
	}, []want{{claimOrphaned, "/data/d/clean"}}},
	{"a claim although all is settled", func(w *world) {
		w.quiet()
		w.changeEntry(dirIno, "clean", func(e *record.DirEntry) { e.Busy = uint64(cleanIno) })
	}, []want{{claimLeft, "/data/d/clean"}}},
	{"a pin without an upload", func(w *world) {
		w.changeChunk(first, func(c *record.Chunk) { c.Pins = []*record.Pin{{Version: 3, Extents: c.GetExtents()}} })
	}, []want{{pinOrphaned, "/data/d/dirty"}}},
	{"an upload although all is settled", func(w *world) {
		w.quiet()
		w.changeInode(cleanIno, func(in *record.Inode) { in.Intent, in.DirtySince = &record.Intent{Key: "d/clean"}, 9 })
		w.set(w.view.OwnerOfInode(cleanIno), meta.DirtyKey(9, cleanIno), nil)
	}, []want{{intentLeft, "/data/d/clean"}, {owingLeft, "/data/d/clean"}}},
	{"an inode that owes and is not listed", func(w *world) { w.drop(meta.DirtyKey(7, dirtyIno)) }, []want{{owingUnlisted, "/data/d/dirty"}}},
	{"an inode that owes nothing and is listed", func(w *world) {
		w.changeInode(cleanIno, func(in *record.Inode) { in.DirtySince = 9 })
		w.set(w.view.OwnerOfInode(cleanIno), meta.DirtyKey(9, cleanIno), nil)
	}, []want{{owingStale, "/data/d/clean"}}},
	{"an inode that is not there and listed", func(w *world) { w.set(1, meta.DirtyKey(9, noIno), nil) }, []want{{owingStale, "?"}}},
	{"something owed although all is settled", func(w *world) {
		w.quiet()
		w.changeInode(cleanIno, func(in *record.Inode) { in.AttrDirty, in.DirtySince = true, 9 })
		w.set(w.view.OwnerOfInode(cleanIno), meta.DirtyKey(9, cleanIno), nil)
	}, []want{{owingLeft, "/data/d/clean"}}},
	{"a clean file with a name that has no object", func(w *world) {
		w.changeInode(linkIno, func(in *record.Inode) { in.Links[1].Key = "" })
	}, []want{{cleanUnstored, "/data/d/link"}}},
	{"a misplaced entry", func(w *world) {
		w.drop(meta.EntryKey(dirIno, "clean"))
		w.put(w.other(dirIno), meta.EntryKey(dirIno, "clean"), &record.DirEntry{Ino: uint64(cleanIno), Mode: objcache.ModeRegular, Cookie: 1})
	}, []want{{rowMisplaced, "/data/d/clean"}}},
	{"a misplaced inode", func(w *world) {
		w.drop(meta.InodeKey(linkIno))
		w.put(w.other(linkIno), meta.InodeKey(linkIno), &record.Inode{Ino: uint64(linkIno), Mode: objcache.ModeRegular, Nlink: 2, Bucket: "data", Links: []*record.Link{
			{Dir: uint64(bucket), Name: "link", Key: "link"}, {Dir: uint64(dirIno), Name: "link", Key: "d/link"},
		}})
	}, []want{{rowMisplaced, "/data/link"}}},
	{"a misplaced chunk", func(w *world) {
		g := 3 - w.view.OwnerOfChunk(second)
		w.drop(meta.ChunkKey(second))
		w.drop(placeKey(3))
		w.put(g, meta.ChunkKey(second), &record.Chunk{Version: 3, Dirty: true, Extents: []*record.Extent{extent(3, 0, 100)}})
		w.put(g, placeKey(3), &record.Placed{Id: 3, Ino: uint64(dirtyIno), Chunk: 1})
	}, []want{{rowMisplaced, "/data/d/dirty"}}},
	{"a group in no view", func(w *world) {
		w.in.Groups = append(w.in.Groups, Group{ID: 9, Each: func(func(k, v []byte) error) error { return nil }})
	}, []want{{groupMissing, ""}}},
	{"a damaged entry", func(w *world) { w.set(0, meta.EntryKey(bucket, "zz"), []byte{0xff}) }, []want{{corruptRow, "/data/zz"}}},
	{"a damaged inode", func(w *world) { w.set(1, meta.InodeKey(noIno), []byte{0xff}) }, []want{{corruptRow, "?"}}},
	{"a misplaced tombstone", func(w *world) { w.put(w.other(dirIno), meta.EntryKey(dirIno, "gone"), &record.DirEntry{}) },
		[]want{{rowMisplaced, "/data/d/gone"}}},
	{"a tombstone in the place of a name", func(w *world) {
		w.changeEntry(dirIno, "link", func(e *record.DirEntry) { *e = record.DirEntry{} })
	}, []want{{linkDangling, "/data/d/link"}, {childCount, "/data/d"}, {cookieWrong, "/data/d/link"}}},
	{"an inode that knows none of its names", func(w *world) {
		w.changeInode(cleanIno, func(in *record.Inode) { in.Links = nil })
	}, []want{{entryUnlinked, "/data/d/clean"}, {inodeNameless, "?"}}},
	{"a bucket's directory below its own", func(w *world) {
		w.changeInode(bucket, func(in *record.Inode) { in.Links[0].Dir = uint64(dirIno) })
	}, []want{
		{dirCircle, circular}, {dirCircle, circular}, {dirCircle, circular}, {dirCircle, circular}, {dirCircle, circular}, {linkCount, circular},
		{linkDangling, circular},
	}},
	{"bytes that the chunks of two files name", func(w *world) {
		k := w.chunkWith(linkIno, 1)
		w.put(0, meta.ChunkKey(k), &record.Chunk{Version: 3, Dirty: true, Extents: []*record.Extent{extent(1, 0, 100)}})
		w.changeInode(linkIno, func(in *record.Inode) { in.Dirty, in.DirtySince = true, 9 })
		w.set(w.view.OwnerOfInode(linkIno), meta.DirtyKey(9, linkIno), nil)
	}, []want{{extentTwice, "/data/link"}}},
	{"a chunk's row of a file that is gone", func(w *world) { w.chunk(noIno, 0) }, []want{{chunkLeft, "?"}}},
	{"two extents on the same bytes of the disk", func(w *world) {
		w.put(w.view.OwnerOfChunk(first), placeKey(2), &record.Placed{
			Id: 2, Ino: uint64(dirtyIno), Place: &record.Place{File: 1, Off: 1<<12 + 99, Len: 100},
		})
	}, []want{{placeTwice, "/data/d/dirty"}}},
	{"bytes that rot", func(w *world) { w.disk(first).Rotten = map[uint64]string{2: "rot"} }, []want{{extentRotten, "/data/d/dirty"}}},
	{"rot that nothing names", func(w *world) { w.disk(first).Rotten = map[uint64]string{77: "rot"} }, nil},
	{"a file that no row names", func(w *world) {
		w.disk(first).Strays = []Stray{{File: "000000000000000a.c", Bytes: 7}, {File: "notes.txt", Bytes: 9, Foreign: true}}
	}, []want{{fileNameless, ""}, {fileForeign, ""}}},
	{"a damaged log", func(w *world) { w.disk(first).Damages = []string{"log"} }, []want{{diskDamaged, ""}}},
	{"bytes of a session that is over", func(w *world) {
		w.disk(first).Staged = []Staged{{Client: 5, Chunk: first, Bytes: 10}}
	}, []want{{stagedOrphaned, "/data/d/dirty"}}},
	{"a lock of a session that is over", func(w *world) { w.lock(cleanIno, 5) }, []want{{lockOrphaned, "/data/d/clean"}}},
	{"a lock of a session that is being ended", func(w *world) {
		w.lock(cleanIno, 5)
		w.put(w.view.Owner(ring.HashClient(5)), meta.SessionKey(5), &record.Session{Ending: true})
	}, nil},
	{"a lock on a file that is gone", func(w *world) { w.lock(noIno, 5) }, []want{{lockDangling, "?"}}},
	{"a promise to a coordinator without memory", func(w *world) {
		w.set(1, []byte("Li"), []byte("second"))
		w.put(2, meta.PreparedKey(&record.TxID{Client: 1}), &record.Prepared{Tx: &record.TxID{Client: 1}, Coordinator: 1, Incarnation: "first"})
	}, []want{{promiseLost, ""}}},
	{"a promise to a coordinator that remembers", func(w *world) {
		w.set(1, []byte("Li"), []byte("first"))
		w.put(2, meta.PreparedKey(&record.TxID{Client: 1}), &record.Prepared{Tx: &record.TxID{Client: 1}, Coordinator: 1, Incarnation: "first"})
	}, nil},
	{"a damaged decision", func(w *world) { w.set(1, meta.DecisionKey(&record.TxID{Client: 1}), []byte{0xff}) }, []want{{corruptRow, ""}}},
	{"a damaged place", func(w *world) { w.set(1, placeKey(99), []byte{0xff}) }, []want{{corruptRow, ""}}},
	{"a promise although all is settled", func(w *world) {
		w.quiet()
		w.put(1, meta.PreparedKey(&record.TxID{Client: 1}), &record.Prepared{Tx: &record.TxID{Client: 1}, Coordinator: 2})
	}, []want{{promiseLeft, ""}}},
	{"a decision although all is settled", func(w *world) {
		w.quiet()
		w.put(1, meta.DecisionKey(&record.TxID{Client: 1}), &record.Decision{Tx: &record.TxID{Client: 1}, Participants: []uint32{2}})
	}, []want{{decisionLeft, ""}}},
	{"bytes that are nowhere", func(w *world) { w.drop(placeKey(2)) }, []want{{extentUnplaced, "/data/d/dirty"}}},
	{"bytes kept for nothing", func(w *world) { w.place(first, 99) }, []want{{placeLeft, "/data/d/dirty"}}},
	{"bytes that two chunks name", func(w *world) {
		w.groupOfBoth(func(k objcache.ChunkKey) {
			w.put(0, meta.ChunkKey(k), &record.Chunk{Version: 3, Dirty: true, Extents: []*record.Extent{extent(1, 0, 100)}})
		})
	}, []want{{extentTwice, "/data/d/dirty"}}},
	{"a byte with two sources", func(w *world) {
		w.changeChunk(first, func(c *record.Chunk) { c.Extents[1].Start, c.Extents[1].VisibleOff = 50, 50 })
	}, []want{{extentOverlap, "/data/d/dirty"}}},
	{"an extent that shows what it does not hold", func(w *world) {
		w.changeChunk(first, func(c *record.Chunk) { c.Extents[1].VisibleLen = 200 })
	}, []want{{extentRange, "/data/d/dirty"}}},
	{"a chunk without a file", func(w *world) { w.chunk(noIno, 0, extent(50, 0, 10)) }, []want{{chunkOrphaned, "?"}}},
	{"a chunk newer than its file", func(w *world) {
		w.changeChunk(first, func(c *record.Chunk) { c.Version = 9 })
	}, []want{{chunkNewer, "/data/d/dirty"}}},
	{"dirty bytes of a clean file", func(w *world) { w.chunk(cleanIno, 0, extent(50, 0, 5)) }, []want{{chunkDirty, "/data/d/clean"}}},
	{"an object that is not there", func(w *world) {
		w.in.Objects = objects()
		delete(w.in.Objects["data"], "d/clean")
	}, []want{{objectMissing, "/data/d/clean"}}},
	{"another object", func(w *world) {
		w.in.Objects = objects()
		w.in.Objects["data"]["d/clean"] = external.Object{Key: "d/clean", ETag: "e2", Size: 5}
	}, []want{{objectOther, "/data/d/clean"}}},
	{"an object without a name", func(w *world) {
		w.quiet()
		w.changeInode(dirtyIno, func(in *record.Inode) { in.Links[0].Key, in.Links[0].Etag, in.Size = "d/dirty", "e3", 1 })
		w.in.Objects = objects()
		w.in.Objects["data"]["d/dirty"] = external.Object{Key: "d/dirty", ETag: "e3", Size: 1}
		w.in.Objects["data"]["stray"] = external.Object{Key: "stray"}
	}, []want{{objectStray, ""}}},
}

// circular is the path of a directory that stands below itself, as far as it is written.
const circular = "circle"

func TestCheck_NamesEachDamage(t *testing.T) {
	for _, d := range damages {
		t.Run(d.name, func(t *testing.T) {
			w := newWorld(t)
			d.plant(w)
			expect(t, w, d.want)
		})
	}
}

func expect(t *testing.T, w *world, wants []want) []Finding {
	t.Helper()
	found, err := Check(w.in)
	if err != nil {
		t.Fatal(err)
	}
	var got []want
	for _, f := range found {
		if len(f.Path) > 1000 {
			f.Path = circular
		}
		if f.Text == "" || f.Severity == "" {
			t.Errorf("%+v says nothing", f)
		}
		got = append(got, want{f.Code, f.Path})
	}
	sorted := slices.SortedFunc(slices.Values(wants), compare)
	if slices.SortFunc(got, compare); !slices.Equal(got, sorted) {
		t.Errorf("found%s\nwant %+v", list(found), sorted)
	}
	return found
}

func list(found []Finding) (s string) {
	for _, f := range found {
		s += "\n" + string(f.Code) + " " + f.Where() + ": " + f.Text
	}
	return s
}

func compare(a, b want) int {
	return slices.Compare([]string{string(a.code), a.path}, []string{string(b.code), b.path})
}

func TestCheck_FindsNothingInHealthyRows(t *testing.T) {
	expect(t, newWorld(t), nil)
	w := newWorld(t)
	w.quiet()
	expect(t, w, nil)
}

// TestCheck_TwoRows: which of two rows counts is not known, so what disagrees with the one that was read first is found too.
func TestCheck_TwoRows(t *testing.T) {
	w := newWorld(t)
	in, err := meta.Inode(w.groups[w.view.OwnerOfInode(cleanIno)], cleanIno)
	if err != nil {
		t.Fatal(err)
	}
	w.put(w.other(cleanIno), meta.InodeKey(cleanIno), in)
	found, err := Check(w.in)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(found, func(f Finding) bool { return f.Code == rowTwice && f.Path == "/data/d/clean" }) {
		t.Errorf("found %+v", found)
	}
}

func TestCheck_AGroupThatWasNotReadIsNamed(t *testing.T) {
	w := newWorld(t)
	w.in.Groups = w.in.Groups[:1]
	found, err := Check(w.in)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(found, func(f Finding) bool { return f.Code == groupAbsent && f.Group == 2 }) {
		t.Errorf("found %+v", found)
	}
}

// TestCheck_TakesCommittedPromisesAsDone: a participant that has not heard of the decision yet is not behind.
func TestCheck_TakesCommittedPromisesAsDone(t *testing.T) {
	w := newWorld(t)
	tx := &record.TxID{Client: 4, Seq: 5, TxSeq: 6}
	key := meta.InodeKey(cleanIno)
	g := w.view.OwnerOfInode(cleanIno)
	v, c, err := w.groups[g].Get(key)
	if err != nil {
		t.Fatal(err)
	}
	p := &record.Prepared{Tx: tx, Coordinator: uint32(3 - g), Rows: []*record.Row{{Key: key, Value: slices.Clone(v)}}}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	w.drop(key)
	w.put(g, meta.PreparedKey(tx), p)
	expect(t, w, []want{{entryDangling, "/data/d/clean"}})
	w.put(3-g, meta.DecisionKey(tx), &record.Decision{Tx: tx, Participants: []uint32{uint32(g)}})
	expect(t, w, nil)
}

// groupOfBoth calls f with a chunk of the dirty file that lies with its first chunk's group.
func (w *world) groupOfBoth(f func(objcache.ChunkKey)) { f(w.chunkWith(dirtyIno, 2)) }

// chunkWith is a chunk of a file, from the index on, that lies with the dirty file's first chunk.
func (w *world) chunkWith(ino objcache.Ino, index uint32) objcache.ChunkKey {
	for ; ; index++ {
		if k := (objcache.ChunkKey{Ino: ino, Index: index}); w.view.OwnerOfChunk(k) == w.view.OwnerOfChunk(first) {
			return k
		}
	}
}

// disk is what is known of the disk that a chunk lies on.
func (w *world) disk(k objcache.ChunkKey) *Disk {
	return &w.in.Groups[w.view.OwnerOfChunk(k)-1].Disk
}

func (w *world) lock(ino objcache.Ino, client uint64) {
	w.t.Helper()
	w.put(w.view.OwnerOfInode(ino), meta.FileLocksKey(ino), &record.FileLocks{
		Posix: []*record.FileLock{{Client: client, End: 9}}, Flock: []*record.FileLock{{Client: client, End: filelock.EOF}},
	})
}

// TestCheck_ARenameThatAParticipantHasNotHeardOf: the directory says the new name, the inode promises it.
func TestCheck_ARenameThatAParticipantHasNotHeardOf(t *testing.T) {
	w := newWorld(t)
	tx := &record.TxID{Client: 1, Seq: 2, TxSeq: 3}
	own, g := w.view.OwnerOfInode(dirIno), w.view.OwnerOfInode(cleanIno)
	in, err := meta.Inode(w.groups[g], cleanIno)
	if err != nil {
		t.Fatal(err)
	}
	in.Links[0].Name = "new"
	v, err := proto.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	w.put(own, meta.EntryKey(dirIno, "clean"), &record.DirEntry{Debts: []*record.Debt{{Ino: uint64(cleanIno)}}})
	w.drop(meta.CookieKey(dirIno, 1))
	w.entry(dirIno, "new", cleanIno, objcache.ModeRegular, 4)
	w.put(own, meta.DecisionKey(tx), &record.Decision{Tx: tx, Participants: []uint32{uint32(g)}})
	w.put(g, meta.PreparedKey(tx), &record.Prepared{Tx: tx, Coordinator: uint32(own), Rows: []*record.Row{{Key: meta.InodeKey(cleanIno), Value: v}}})
	expect(t, w, nil)
}

// TestCheck_WithoutAGroupOnlyWhatTheOthersSayAmongThemselvesCounts: names of inodes that were not read are not said to be names of nothing.
func TestCheck_WithoutAGroupOnlyWhatTheOthersSayAmongThemselvesCounts(t *testing.T) {
	for _, g := range []int{0, 1} {
		w := newWorld(t)
		w.in.Groups = w.in.Groups[g : g+1]
		found, err := Check(w.in)
		if err != nil || len(found) != 1 || found[0].Code != groupAbsent {
			t.Errorf("group %d alone: found%s, %v", g+1, list(found), err)
		}
	}
}
