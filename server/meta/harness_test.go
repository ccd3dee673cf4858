package meta

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/protobuf/proto"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/record"
)

// rows is one group's rows in memory, which owns everything.
type rows struct {
	t       *testing.T
	db      *pebble.DB
	applied uint64
	open    map[objcache.Ino]bool
	listing bool
	next    uint64
	fx      Effects
}

func newRows(t *testing.T) *rows {
	t.Helper()
	db, err := pebble.Open("", &pebble.Options{FS: vfs.NewMem(), DisableWAL: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return &rows{t: t, db: db, applied: 10, open: map[objcache.Ino]bool{}}
}

func (r *rows) HasOpen(ino objcache.Ino) bool { return r.open[ino] }
func (r *rows) Listing(objcache.Ino) bool     { return r.listing }
func (r *rows) Owns(objcache.ChunkKey) bool   { return true }
func (r *rows) NextExtent() uint64            { r.next++; return r.next }
func (r *rows) Now() int64                    { return 1 }
func (r *rows) Staged(objcache.ClientID, objcache.ChunkKey, uint64, uint64) ([]*record.Extent, []*record.Placed, bool) {
	return nil, nil, false
}

// try evaluates steps as one transaction and applies it if none is refused.
func (r *rows) try(steps ...any) error {
	r.t.Helper()
	b := r.db.NewIndexedBatch()
	defer func() {
		if err := b.Close(); err != nil {
			r.t.Error(err)
		}
	}()
	e := NewEval(b, r.applied, r)
	for _, s := range steps {
		if _, err := e.Step(stepOf(s)); err != nil {
			return err
		}
	}
	fx, err := e.Effects()
	if err != nil {
		r.t.Fatal(err)
	}
	r.fx = fx
	r.applied++
	for _, row := range fx.Rows {
		err = r.db.Set(row.GetKey(), row.GetValue(), pebble.NoSync)
		if row.Value == nil {
			err = r.db.Delete(row.GetKey(), pebble.NoSync)
		}
		if err != nil {
			r.t.Fatal(err)
		}
	}
	return nil
}

func stepOf(s any) *rpc.Step {
	switch x := s.(type) {
	case *rpc.AddEntry:
		return &rpc.Step{Step: &rpc.Step_AddEntry{AddEntry: x}}
	case *rpc.RemoveEntry:
		return &rpc.Step{Step: &rpc.Step_RemoveEntry{RemoveEntry: x}}
	case *rpc.PutInode:
		return &rpc.Step{Step: &rpc.Step_PutInode{PutInode: x}}
	case *rpc.Relink:
		return &rpc.Step{Step: &rpc.Step_Relink{Relink: x}}
	case *rpc.KillDir:
		return &rpc.Step{Step: &rpc.Step_KillDir{KillDir: x}}
	case *rpc.SetInode:
		return &rpc.Step{Step: &rpc.Step_SetInode{SetInode: x}}
	case *rpc.FlushInode:
		return &rpc.Step{Step: &rpc.Step_FlushInode{FlushInode: x}}
	case *rpc.CommitChunk:
		return &rpc.Step{Step: &rpc.Step_CommitChunk{CommitChunk: x}}
	case *rpc.CutChunks:
		return &rpc.Step{Step: &rpc.Step_CutChunks{CutChunks: x}}
	case *rpc.BeginPersist:
		return &rpc.Step{Step: &rpc.Step_BeginPersist{BeginPersist: x}}
	case *rpc.PinChunk:
		return &rpc.Step{Step: &rpc.Step_PinChunk{PinChunk: x}}
	case *rpc.EndPersist:
		return &rpc.Step{Step: &rpc.Step_EndPersist{EndPersist: x}}
	case *rpc.UnpinChunk:
		return &rpc.Step{Step: &rpc.Step_UnpinChunk{UnpinChunk: x}}
	case *rpc.SettleEntry:
		return &rpc.Step{Step: &rpc.Step_SettleEntry{SettleEntry: x}}
	case *rpc.ClaimEntry:
		return &rpc.Step{Step: &rpc.Step_ClaimEntry{ClaimEntry: x}}
	case *rpc.MergePage:
		return &rpc.Step{Step: &rpc.Step_MergePage{MergePage: x}}
	case *rpc.RefreshBase:
		return &rpc.Step{Step: &rpc.Step_RefreshBase{RefreshBase: x}}
	case *rpc.Forget:
		return &rpc.Step{Step: &rpc.Step_Forget{Forget: x}}
	case *rpc.CheckParent:
		return &rpc.Step{Step: &rpc.Step_CheckParent{CheckParent: x}}
	case *rpc.VanishDir:
		return &rpc.Step{Step: &rpc.Step_VanishDir{VanishDir: x}}
	}
	return &rpc.Step{}
}

func (r *rows) do(steps ...any) {
	r.t.Helper()
	if err := r.try(steps...); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rows) refuse(k objcache.Kind, steps ...any) {
	r.t.Helper()
	if err := r.try(steps...); !errors.Is(err, k) {
		r.t.Fatalf("got %v, want %v", err, k)
	}
}

func (r *rows) inode(ino uint64) *record.Inode {
	r.t.Helper()
	in, err := Inode(r.db, objcache.Ino(ino))
	if err != nil {
		r.t.Fatal(err)
	}
	return in
}

func (r *rows) entry(dir uint64, name string) *record.DirEntry {
	r.t.Helper()
	row, err := Entry(r.db, objcache.Ino(dir), name)
	if err != nil {
		r.t.Fatal(err)
	}
	return row
}

func (r *rows) chunk(ino uint64) *record.Chunk {
	r.t.Helper()
	c, err := Chunk(r.db, objcache.ChunkKey{Ino: objcache.Ino(ino)})
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

func pack(m proto.Message) []byte {
	b, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	return b
}

// Numbers of the inodes of tests.
const (
	top  = 100 // a directory
	sub  = 101 // a directory in it
	file = 200
)

func (r *rows) dir(ino uint64, parent uint64, name string) *rows {
	r.do(&rpc.PutInode{Inode: pack(&record.Inode{
		Ino: ino, Mode: objcache.ModeDir | 0o755, Nlink: 2, Version: 1, Dir: &record.DirState{Complete: true}, Links: []*record.Link{{Dir: parent, Name: name}},
	})})
	return r
}

// withFile makes directory top with a dirty file "f".
func withFile(t *testing.T) *rows {
	r := newRows(t).dir(top, 1, "b")
	r.do(&rpc.AddEntry{Dir: top, Name: "f", Ino: file, Mode: objcache.ModeRegular, Now: 5},
		&rpc.PutInode{Inode: pack(&record.Inode{
			Ino: file, Mode: objcache.ModeRegular | 0o644, Nlink: 1, Version: 1, Dirty: true, Ctime: 5, Links: []*record.Link{{Dir: top, Name: "f"}},
		})})
	return r
}

// write commits bytes of chunk 0 with an extent of its own.
func (r *rows) write(version uint64, off, n int64) uint64 {
	r.t.Helper()
	id := r.NextExtent()
	in := r.inode(file)
	r.do(&rpc.FlushInode{Ino: file, Version: version, Generation: in.GetGeneration(), Size: off + n, Mtime: 7, Now: 7},
		&rpc.CommitChunk{Ino: file, Version: version + 1, Extents: [][]byte{pack(&record.Extent{Id: id, Start: off, Len: n, VisibleOff: off, VisibleLen: n})}})
	return id
}

// begin starts an upload of the file's present version under the name f.
func (r *rows) begin() *record.Intent {
	r.t.Helper()
	in := r.inode(file)
	it := &record.Intent{Tx: &record.TxID{Client: 9}, Version: in.GetVersion(), Key: "f", Dir: top, Name: "f", Size: in.GetSize(), Started: 50}
	r.do(&rpc.BeginPersist{Ino: file, Version: in.GetVersion(), Intent: pack(it)}, &rpc.ClaimEntry{Dir: top, Name: "f", Ino: file}, &rpc.PinChunk{Ino: file, Version: in.GetVersion()})
	return it
}

// end finishes it.
func (r *rows) end(it *record.Intent) {
	r.t.Helper()
	r.do(&rpc.EndPersist{
		Ino: file, Done: true, Version: it.GetVersion(), Link: pack(&record.Link{Dir: top, Name: "f", Key: "f", Etag: "E", Version: it.GetVersion()}),
		Base: pack(&record.Base{Key: "f", Etag: "E", Size: it.GetSize(), Length: it.GetSize(), Version: it.GetVersion()}),
	}, &rpc.SettleEntry{Dir: top, Name: "f", Ino: file, Etag: "E", Size: it.GetSize(), Key: "f"},
		&rpc.UnpinChunk{Ino: file, Version: it.GetVersion(), Done: true, Etag: "E", Len: it.GetSize()})
}

var (
	it2   = record.Intent{Tx: &record.TxID{Client: 10}, Version: 2}
	linkF = record.Link{Dir: top, Name: "f", Key: "f", Etag: "E", Version: 2}
	baseF = record.Base{Key: "f", Etag: "E", Size: 100, Length: 100, Version: 2}
)
