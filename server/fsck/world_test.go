package fsck

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/protobuf/proto"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/external"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
	"github.com/objcache/objcache/server/ring"
)

// Inodes of a healthy world.
const (
	dirIno   objcache.Ino = 1<<48 | 1<<34 | iota + 1 // /data/d
	cleanIno                                         // /data/d/clean, whose object the bucket holds
	dirtyIno                                         // /data/d/dirty, with two extents in chunk 0 and one in chunk 1
	linkIno                                          // /data/link and /data/d/link
	noIno                                            // never there
)

// world is the rows of a cluster of two groups.
type world struct {
	t      *testing.T
	view   *ring.View
	groups map[objcache.GroupID]*pebble.DB
	in     Cluster
}

func newWorld(t *testing.T) *world {
	t.Helper()
	v, err := ring.New(objcache.ViewVersion{Epoch: 1, Version: 1}, []ring.Member{
		{Group: 1, Name: "a", Address: "a:1", Weight: 1}, {Group: 2, Name: "b", Address: "b:1", Weight: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, view: v, groups: map[objcache.GroupID]*pebble.DB{}}
	w.in = Cluster{View: v, Hidden: ".objcache/"}
	for _, m := range v.Members {
		db, err := pebble.Open("", &pebble.Options{FS: vfs.NewMem(), DisableWAL: true, Logger: silent{}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
		w.groups[m.Group] = db
		w.in.Groups = append(w.in.Groups, Group{ID: m.Group, Rows: db})
	}
	w.fill()
	return w
}

var bucket = meta.BucketIno("data")

func (w *world) fill() {
	w.inode(&record.Inode{
		Ino: uint64(bucket), Mode: objcache.ModeDir | 0o755, Nlink: 3, Bucket: "data", Dir: &record.DirState{Complete: true, Children: 2, NextCookie: 2},
		Links: []*record.Link{{Dir: uint64(objcache.RootIno), Name: "data"}},
	})
	w.inode(&record.Inode{
		Ino: uint64(dirIno), Mode: objcache.ModeDir | 0o755, Nlink: 2, Bucket: "data", Dir: &record.DirState{Prefix: "d/", Complete: true, Children: 3, NextCookie: 3},
		Links: []*record.Link{{Dir: uint64(bucket), Name: "d"}},
	})
	file := func(ino objcache.Ino, links ...*record.Link) *record.Inode {
		return &record.Inode{Ino: uint64(ino), Mode: objcache.ModeRegular | 0o644, Nlink: uint32(len(links)), Bucket: "data", Version: 3, Links: links}
	}
	clean := file(cleanIno, &record.Link{Dir: uint64(dirIno), Name: "clean", Key: "d/clean", Etag: "e1"})
	clean.Size, clean.Base = 5, &record.Base{Key: "d/clean", Etag: "e1", Size: 5, Length: 5}
	w.inode(clean)
	dirty := file(dirtyIno, &record.Link{Dir: uint64(dirIno), Name: "dirty"})
	dirty.Dirty, dirty.DirtySince, dirty.Size = true, 7, objcache.ChunkSize+100
	w.inode(dirty)
	w.inode(file(linkIno, &record.Link{Dir: uint64(bucket), Name: "link", Key: "link"}, &record.Link{Dir: uint64(dirIno), Name: "link", Key: "d/link"}))
	w.entry(bucket, "d", dirIno, objcache.ModeDir, 1)
	w.entry(bucket, "link", linkIno, objcache.ModeRegular, 2)
	w.entry(dirIno, "clean", cleanIno, objcache.ModeRegular, 1)
	w.entry(dirIno, "dirty", dirtyIno, objcache.ModeRegular, 2)
	w.entry(dirIno, "link", linkIno, objcache.ModeRegular, 3)
	w.chunk(dirtyIno, 0, extent(1, 0, 100), extent(2, 100, 100))
	w.chunk(dirtyIno, 1, extent(3, 0, 100))
}

func extent(id uint64, off, n int64) *record.Extent {
	return &record.Extent{Id: id, Start: off, Len: n, VisibleOff: off, VisibleLen: n, Version: 3}
}

type silent struct{}

func (silent) Infof(string, ...any)           {}
func (silent) Errorf(string, ...any)          {}
func (silent) Fatalf(format string, a ...any) { panic(fmt.Sprintf(format, a...)) }

// set writes a row where it belongs, or where at says.
func (w *world) set(g objcache.GroupID, key []byte, v []byte) {
	w.t.Helper()
	if g == 0 {
		g = w.view.Owner(binary.BigEndian.Uint64(key[1:]))
	}
	if err := w.groups[g].Set(key, v, pebble.NoSync); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) put(g objcache.GroupID, key []byte, m proto.Message) {
	w.t.Helper()
	v, err := proto.Marshal(m)
	if err != nil {
		w.t.Fatal(err)
	}
	w.set(g, key, v)
}

func (w *world) drop(key []byte) {
	w.t.Helper()
	for _, db := range w.groups {
		if err := db.Delete(key, pebble.NoSync); err != nil {
			w.t.Fatal(err)
		}
	}
}

// inode writes an inode with its row in the index of what is owed.
func (w *world) inode(in *record.Inode) {
	w.t.Helper()
	w.put(0, meta.InodeKey(objcache.Ino(in.GetIno())), in)
	if in.GetDirtySince() != 0 {
		w.set(w.view.OwnerOfInode(objcache.Ino(in.GetIno())), meta.DirtyKey(in.GetDirtySince(), objcache.Ino(in.GetIno())), nil)
	}
}

func (w *world) entry(dir objcache.Ino, name string, ino objcache.Ino, mode uint32, cookie uint64) {
	w.t.Helper()
	w.put(0, meta.EntryKey(dir, name), &record.DirEntry{Ino: uint64(ino), Mode: mode, Cookie: cookie})
	w.set(0, meta.CookieKey(dir, cookie), []byte(name))
}

// chunk writes a dirty chunk, with the places of its extents.
func (w *world) chunk(ino objcache.Ino, index uint32, xs ...*record.Extent) {
	w.t.Helper()
	k := objcache.ChunkKey{Ino: ino, Index: index}
	w.put(0, meta.ChunkKey(k), &record.Chunk{Version: 3, Dirty: true, Extents: xs})
	for _, x := range xs {
		w.place(k, x.GetId())
	}
}

func placeKey(id uint64) []byte { return binary.BigEndian.AppendUint64([]byte("Lp"), id) }

func (w *world) place(k objcache.ChunkKey, id uint64) {
	w.t.Helper()
	w.put(w.view.OwnerOfChunk(k), placeKey(id), &record.Placed{Id: id, Ino: uint64(k.Ino), Chunk: k.Index, Place: &record.Place{File: 1, Off: int64(id) << 12, Len: 100}})
}

// changeInode changes an inode's row and nothing else.
func (w *world) changeInode(ino objcache.Ino, change func(*record.Inode)) {
	w.t.Helper()
	in, err := meta.Inode(w.groups[w.view.OwnerOfInode(ino)], ino)
	if err != nil || in == nil {
		w.t.Fatalf("inode %d: %v", ino, err)
	}
	change(in)
	w.put(0, meta.InodeKey(ino), in)
}

func (w *world) changeEntry(dir objcache.Ino, name string, change func(*record.DirEntry)) {
	w.t.Helper()
	e, err := meta.Entry(w.groups[w.view.OwnerOfInode(dir)], dir, name)
	if err != nil || e == nil {
		w.t.Fatalf("entry %q: %v", name, err)
	}
	change(e)
	w.put(0, meta.EntryKey(dir, name), e)
}

func (w *world) changeChunk(k objcache.ChunkKey, change func(*record.Chunk)) {
	w.t.Helper()
	c, err := meta.Chunk(w.groups[w.view.OwnerOfChunk(k)], k)
	if err != nil || c == nil {
		w.t.Fatalf("chunk %v: %v", k, err)
	}
	change(c)
	w.put(0, meta.ChunkKey(k), c)
}

// objects is what the bucket holds of a healthy world.
func objects() map[string]map[string]external.Object {
	return map[string]map[string]external.Object{"data": {
		"d/clean": {Key: "d/clean", ETag: "e1", Size: 5}, "link": {Key: "link"}, "d/link": {Key: "d/link"}, ".objcache/dirs/x": {Key: ".objcache/dirs/x"},
	}}
}

// quiet takes away what is owed, so that nothing may be under way.
func (w *world) quiet() {
	w.in.Quiet = true
	w.changeInode(dirtyIno, func(in *record.Inode) { in.Dirty, in.DirtySince, in.Links[0].Key = false, 0, "d/dirty" })
	w.drop(meta.DirtyKey(7, dirtyIno))
	for i := range uint32(2) {
		w.drop(meta.ChunkKey(objcache.ChunkKey{Ino: dirtyIno, Index: i}))
	}
	for id := range uint64(3) {
		w.drop(placeKey(id + 1))
	}
}

// other is the group that does not own an inode.
func (w *world) other(ino objcache.Ino) objcache.GroupID { return 3 - w.view.OwnerOfInode(ino) }
