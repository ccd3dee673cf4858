package meta

import (
	"math/rand/v2"
	"testing"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/record"
)

func TestOverlayAndCut_ShowTheLastWriteOfEveryByte(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var model [64]uint64 // extent that shows at each byte; 0: none
		var xs []*record.Extent
		for id := uint64(1); id < 20; id++ {
			if rng.IntN(4) == 0 {
				at := rng.Int64N(64)
				xs = Cut(xs, at)
				clear(model[at:])
			}
			off := rng.Int64N(60)
			n := 1 + rng.Int64N(64-off)
			xs = Overlay(xs, &record.Extent{Id: id, Start: off, Len: n, VisibleOff: off, VisibleLen: n})
			for i := off; i < off+n; i++ {
				model[i] = id
			}
			sameAsModel(t, xs, model)
		}
	}
}

func sameAsModel(t *testing.T, xs []*record.Extent, model [64]uint64) {
	t.Helper()
	var got [64]uint64
	end := int64(0)
	for _, x := range xs {
		if x.GetVisibleOff() < end || x.GetVisibleLen() <= 0 || x.GetVisibleOff() < x.GetStart() || x.GetVisibleOff()+x.GetVisibleLen() > x.GetStart()+x.GetLen() {
			t.Fatalf("parts overlap, are empty, or show what they do not hold: %v", xs)
		}
		end = x.GetVisibleOff() + x.GetVisibleLen()
		for i := x.GetVisibleOff(); i < end; i++ {
			got[i] = x.GetId()
		}
	}
	if got != model {
		t.Fatalf("got %v\nwant %v", got, model)
	}
}

func TestCommitChunk_DropsWhatIsCovered(t *testing.T) {
	r := withFile(t)
	first := r.write(1, 0, 100)
	r.write(2, 50, 100)
	if len(r.fx.Dropped) != 0 {
		t.Errorf("a part of the first write still shows: %v", r.fx.Dropped)
	}
	r.write(3, 0, 60)
	if len(r.fx.Dropped) != 1 || r.fx.Dropped[0].GetId() != first {
		t.Errorf("dropped %v, want extent %d", r.fx.Dropped, first)
	}
}

func TestCommitChunk_RefusesLostStagesAndMisplacedBytes(t *testing.T) {
	r := withFile(t)
	r.refuse(objcache.StageLost, &rpc.CommitChunk{Ino: file, Version: 2, First: 1, Seq: 2, Client: 3})
	r.refuse(objcache.Invalid, &rpc.CommitChunk{Ino: file, Version: 2, Inline: []*rpc.Inline{{Off: objcache.ChunkSize - 1, Data: []byte("ab")}}})
}

func TestTruncate_ShrunkThenGrownLeavesNothingBehindTheCut(t *testing.T) {
	r := withFile(t)
	r.write(1, 0, 100)
	it := r.begin()
	r.end(it)
	r.write(2, 10, 50)
	cut := func(size int64) {
		in := r.inode(file)
		r.do(&rpc.FlushInode{Ino: file, Version: in.GetVersion(), Generation: in.GetGeneration(), Size: size, Truncate: true},
			&rpc.CutChunks{Ino: file, Cut: size, OldSize: in.GetSize(), Version: in.GetVersion() + 1})
	}
	cut(30)
	cut(100)
	in, c := r.inode(file), r.chunk(file)
	if in.GetSize() != 100 || in.GetBase().GetLength() != 30 || in.GetBase().GetSize() != 100 || in.GetGeneration() != 2 {
		t.Errorf("inode %v", in)
	}
	if xs := c.GetExtents(); len(xs) != 1 || xs[0].GetVisibleOff()+xs[0].GetVisibleLen() != 30 {
		t.Errorf("extents %v", xs)
	}
	r.refuse(objcache.StageLost, &rpc.FlushInode{Ino: file, Version: in.GetVersion(), Generation: 0})
	r.refuse(objcache.Conflict, &rpc.FlushInode{Ino: file, Version: in.GetVersion() - 1, Generation: 2})
}
