package chunk

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/objcache/objcache"
)

// modelChunk is a chunk as its caller sees it: the bytes, and which place shows each range.
type modelChunk struct {
	bytes  []byte
	pieces []Piece // sorted, no overlaps
	all    []Place // live, whole
}

// overwrite puts a new place on top.
func (m *modelChunk) overwrite(pl Place, data []byte) {
	copy(m.bytes[pl.Start:], data)
	var next []Piece
	for _, p := range m.pieces {
		if p.Off < pl.Start {
			next = append(next, Piece{p.Place, p.Off, min(p.Len, pl.Start-p.Off)})
		}
		if end := pl.Start + pl.Len; p.Off+p.Len > end {
			from := max(p.Off, end)
			next = append(next, Piece{p.Place, from, p.Off + p.Len - from})
		}
	}
	next = append(next, whole(pl))
	m.pieces = next
	slices.SortFunc(m.pieces, func(a, b Piece) int { return int(a.Off - b.Off) })
	m.all = append(m.all, pl)
}

// dead takes the places out that no piece shows any more.
func (m *modelChunk) dead() (out []Place) {
	m.all = slices.DeleteFunc(m.all, func(pl Place) bool {
		shown := slices.ContainsFunc(m.pieces, func(p Piece) bool { return p.Place.File == pl.File && p.Place.Off == pl.Off })
		if !shown {
			out = append(out, pl)
		}
		return !shown
	})
	return out
}

func TestModel_RandomOperationsReadWhatWasWritten(t *testing.T) {
	const size = 2 * mib
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 3))
		dir := t.TempDir()
		budget := NewBudget(64*mib, 0)
		opt := Options{SegmentSize: mib, Budget: budget, MaxOpen: 3, Buffered: seed%2 == 0}
		s := openStore(t, dir, opt)
		if err := s.Started(); err != nil {
			t.Fatal(err)
		}
		chunks := make([]modelChunk, 3)
		for i := range chunks {
			chunks[i].bytes = make([]byte, size)
		}
		index := uint64(0)
		for step := range 300 {
			i := rng.IntN(len(chunks))
			m, key := &chunks[i], objcache.ChunkKey{Ino: objcache.Ino(i)}
			switch n := rng.IntN(20); {
			case n < 9:
				off, n := int64(rng.IntN(size/BlockSize))*BlockSize, BlockSize*(1+rng.IntN(4))
				if rng.IntN(2) == 0 {
					off, n = off+int64(rng.IntN(BlockSize)), 1+rng.IntN(2*BlockSize)
				}
				data := content(seed<<12|uint64(step), min(n, int(size-off)))
				m.overwrite(write(t, s, key, off, data), data)
				for _, pl := range m.dead() {
					index++
					s.Free(key, pl, index)
				}
			case n < 15:
				for _, p := range m.pieces {
					got := make([]byte, p.Len)
					if err := s.Read(context.Background(), key, p.Place, p.Off, got); err != nil {
						t.Fatalf("seed %d step %d: %v", seed, step, err)
					}
					if string(got) != string(m.bytes[p.Off:][:p.Len]) {
						t.Fatalf("seed %d step %d: other bytes at %d", seed, step, p.Off)
					}
				}
			case n == 15:
				s.Durable(index)
			case n == 16:
				syncStore(t, s)
			case n < 19: // persist: everything becomes clean
				tag := strconv.Itoa(step)
				if err := s.Adopt(key, tag, m.pieces, size); err != nil && !errors.Is(err, objcache.NoSpace) {
					t.Fatal(err)
				}
				for _, p := range m.pieces {
					got := make([]byte, p.Len)
					ok, err := s.ReadClean(key, tag, p.Off, got)
					if err != nil || ok && string(got) != string(m.bytes[p.Off:][:p.Len]) {
						t.Fatalf("seed %d step %d: clean bytes at %d: %v", seed, step, p.Off, err)
					}
				}
				for _, pl := range m.all {
					index++
					s.Free(key, pl, index)
				}
				m.all, m.pieces = nil, nil
			default: // restart
				syncStore(t, s)
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				if d, c := budget.Used(); d != 0 || c != 0 {
					t.Fatalf("seed %d step %d: budget %d, %d after Close", seed, step, d, c)
				}
				s = openStore(t, dir, opt)
				for i := range chunks {
					for _, pl := range chunks[i].all {
						s.Retain(objcache.ChunkKey{Ino: objcache.Ino(i)}, pl)
					}
				}
				if err := s.Started(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
