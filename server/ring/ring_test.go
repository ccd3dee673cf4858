package ring

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/objcache/objcache"
)

func view(t *testing.T, version uint64, groups ...objcache.GroupID) *View {
	t.Helper()
	var ms []Member
	for _, g := range groups {
		ms = append(ms, Member{Group: g, Name: fmt.Sprint("s", g), Weight: 1})
	}
	v, err := New(objcache.ViewVersion{Epoch: 1, Version: version}, ms)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestOwner_LoadIsEvenOver36Groups(t *testing.T) {
	var gs []objcache.GroupID
	for g := range objcache.GroupID(36) {
		gs = append(gs, g+1)
	}
	v := view(t, 1, gs...)
	load := map[objcache.GroupID]int{}
	const n = 200_000
	for i := range objcache.Ino(n) {
		load[v.OwnerOfInode(i)]++
	}
	for g, l := range load {
		if ratio := float64(l) / (n / 36.0); ratio > 1.3 || ratio < 0.7 {
			t.Errorf("group %d has %.2f of the mean load", g, ratio)
		}
	}
	if len(load) != 36 {
		t.Errorf("%d groups own something, want 36", len(load))
	}
}

func TestDiff_NamesExactlyTheKeysThatMove(t *testing.T) {
	a, b := view(t, 1, 1, 2, 3), view(t, 2, 1, 2, 3, 4)
	arcs := Diff(a, b)
	if len(arcs) == 0 {
		t.Fatal("a join moves nothing")
	}
	rng := rand.New(rand.NewPCG(1, 2))
	moved := 0
	for range 100_000 {
		h := rng.Uint64()
		var in *Arc
		for i, arc := range arcs {
			if arc.From <= arc.To && h >= arc.From && h <= arc.To || arc.From > arc.To && (h >= arc.From || h <= arc.To) {
				in = &arcs[i]
			}
		}
		o, n := a.Owner(h), b.Owner(h)
		switch {
		case in == nil && o != n:
			t.Fatalf("hash %x moves from %d to %d and no arc says so", h, o, n)
		case in != nil && (in.Old != o || in.New != n):
			t.Fatalf("hash %x moves from %d to %d, the arc says %d to %d", h, o, n, in.Old, in.New)
		}
		if o != n {
			moved++
			if n != 4 {
				t.Fatalf("hash %x moves to %d, not to the joiner", h, n)
			}
		}
	}
	if moved < 15_000 || moved > 35_000 {
		t.Errorf("%d of 100000 keys move, want about a quarter", moved)
	}
}

func TestHashChunk_FirstChunkLivesWithItsInode(t *testing.T) {
	if HashChunk(objcache.ChunkKey{Ino: 77}) != HashInode(77) {
		t.Error("chunk 0 has another place than its inode")
	}
	if HashChunk(objcache.ChunkKey{Ino: 77, Index: 1}) == HashInode(77) {
		t.Error("chunk 1 has the place of its inode")
	}
}

func TestNew_RefusesAGroupNamedTwice(t *testing.T) {
	if _, err := New(objcache.ViewVersion{}, []Member{{Group: 1}, {Group: 1}}); objcache.KindOf(err) != objcache.Invalid {
		t.Errorf("got %v", err)
	}
}
