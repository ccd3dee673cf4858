package filelock_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/objcache/objcache/filelock"
)

var a, b = filelock.Owner{Session: 1, ID: 1}, filelock.Owner{Session: 1, ID: 2}

func shared(o filelock.Owner, start, end uint64) filelock.Lock {
	return filelock.Lock{Owner: o, Start: start, End: end}
}

func exclusive(o filelock.Owner, start, end uint64) filelock.Lock {
	return filelock.Lock{Owner: o, Start: start, End: end, Exclusive: true}
}

func TestSet_MergesSplitsAndUpgrades(t *testing.T) {
	for name, c := range map[string]struct {
		sets []filelock.Lock
		want filelock.Table
	}{
		"neighbours of one kind are one":          {[]filelock.Lock{shared(a, 0, 4), shared(a, 5, 9)}, filelock.Table{shared(a, 0, 9)}},
		"from the right too":                      {[]filelock.Lock{shared(a, 5, 9), shared(a, 0, 4)}, filelock.Table{shared(a, 0, 9)}},
		"a gap is filled":                         {[]filelock.Lock{shared(a, 0, 1), shared(a, 4, 5), shared(a, 2, 3)}, filelock.Table{shared(a, 0, 5)}},
		"neighbours of two kinds stay two":        {[]filelock.Lock{shared(a, 0, 4), exclusive(a, 5, 9)}, filelock.Table{shared(a, 0, 4), exclusive(a, 5, 9)}},
		"an upgrade in the middle splits":         {[]filelock.Lock{shared(a, 0, 9), exclusive(a, 3, 5)}, filelock.Table{shared(a, 0, 2), exclusive(a, 3, 5), shared(a, 6, 9)}},
		"a downgrade joins again":                 {[]filelock.Lock{shared(a, 0, 9), exclusive(a, 3, 5), shared(a, 3, 5)}, filelock.Table{shared(a, 0, 9)}},
		"a cover swallows":                        {[]filelock.Lock{shared(a, 1, 2), exclusive(a, 4, 5), shared(a, 0, filelock.EOF)}, filelock.Table{shared(a, 0, filelock.EOF)}},
		"to the end of the file and beyond it":    {[]filelock.Lock{exclusive(a, 10, filelock.EOF), exclusive(a, 5, 9)}, filelock.Table{exclusive(a, 5, filelock.EOF)}},
		"owners do not mix":                       {[]filelock.Lock{shared(a, 0, 4), shared(b, 5, 9)}, filelock.Table{shared(a, 0, 4), shared(b, 5, 9)}},
		"the first byte has no left neighbour":    {[]filelock.Lock{shared(a, 0, 0), shared(a, 1, 1)}, filelock.Table{shared(a, 0, 1)}},
		"the last byte has no right neighbour":    {[]filelock.Lock{shared(a, filelock.EOF, filelock.EOF), shared(a, 0, filelock.EOF-1)}, filelock.Table{shared(a, 0, filelock.EOF)}},
		"the same again changes nothing":          {[]filelock.Lock{exclusive(a, 3, 5), exclusive(a, 3, 5)}, filelock.Table{exclusive(a, 3, 5)}},
		"sessions with the same owner do not mix": {[]filelock.Lock{shared(a, 0, 4), shared(filelock.Owner{Session: 2, ID: 1}, 5, 9)}, filelock.Table{shared(a, 0, 4), shared(filelock.Owner{Session: 2, ID: 1}, 5, 9)}},
	} {
		t.Run(name, func(t *testing.T) {
			var got filelock.Table
			for _, l := range c.sets {
				got = got.Set(l)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%v, not %v", got, c.want)
			}
		})
	}
}

func TestUnset_LeavesWhatLiesOutside(t *testing.T) {
	whole := filelock.Table{exclusive(a, 0, filelock.EOF)}
	for name, c := range map[string]struct {
		start, end uint64
		want       filelock.Table
	}{
		"a part":     {3, 5, filelock.Table{exclusive(a, 0, 2), exclusive(a, 6, filelock.EOF)}},
		"the head":   {0, 5, filelock.Table{exclusive(a, 6, filelock.EOF)}},
		"the tail":   {3, filelock.EOF, filelock.Table{exclusive(a, 0, 2)}},
		"everything": {0, filelock.EOF, filelock.Table{}},
	} {
		if got := whole.Unset(a, c.start, c.end); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, not %v", name, got, c.want)
		}
	}
	if got := whole.Unset(b, 0, filelock.EOF); !slices.Equal(got, whole) {
		t.Errorf("another owner's unlock left %v", got)
	}
}

func TestConflict_OnlyBetweenOwnersAndWithAnExclusive(t *testing.T) {
	held := filelock.Table{shared(a, 0, 9), exclusive(a, 20, 29)}
	for _, c := range []struct {
		l    filelock.Lock
		want bool
	}{
		{shared(b, 0, 9), false}, {exclusive(b, 9, 12), true}, {exclusive(b, 10, 19), false}, {shared(b, 29, 40), true},
		{shared(b, 30, filelock.EOF), false}, {exclusive(a, 0, filelock.EOF), false}, {exclusive(b, 0, filelock.EOF), true},
	} {
		if _, got := held.Conflict(c.l); got != c.want {
			t.Errorf("%v: %v", c.l, got)
		}
	}
}

// model is who holds each byte: 0 nothing, 1 shared, 2 exclusive.
type model struct{ bytes [4][24]byte }

func (m *model) free(l filelock.Lock) bool {
	for o := range m.bytes {
		if uint64(o) == l.Owner.ID {
			continue
		}
		for i := l.Start; i <= l.End; i++ {
			if m.bytes[o][i] == 2 || l.Exclusive && m.bytes[o][i] > 0 {
				return false
			}
		}
	}
	return true
}

func (m *model) put(o, start, end uint64, v byte) {
	for i := start; i <= end; i++ {
		m.bytes[o][i] = v
	}
}

// TestTable_EqualsAModelPerByte does random things to a table and to an array of bytes.
func TestTable_EqualsAModelPerByte(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for round := range 300 {
		var m model
		var table filelock.Table
		for range 60 {
			n := uint64(len(m.bytes[0]))
			l := filelock.Lock{Owner: filelock.Owner{ID: r.Uint64N(4)}, Start: r.Uint64N(n), Exclusive: r.IntN(2) == 0}
			l.End = l.Start + r.Uint64N(n-l.Start)
			if r.IntN(3) == 0 {
				table = table.Unset(l.Owner, l.Start, l.End)
				m.put(l.Owner.ID, l.Start, l.End, 0)
			} else {
				_, conflict := table.Conflict(l)
				if conflict == m.free(l) {
					t.Fatalf("round %d: %v on %v: conflict %v", round, l, table, conflict)
				}
				if conflict {
					continue
				}
				table = table.Set(l)
				m.put(l.Owner.ID, l.Start, l.End, map[bool]byte{false: 1, true: 2}[l.Exclusive])
			}
			if err := same(&m, table); err != nil {
				t.Fatalf("round %d: after %v: %v\n%v", round, l, err, table)
			}
		}
	}
}

func same(m *model, table filelock.Table) error {
	var got model
	for i, l := range table {
		for j := l.Start; j <= l.End; j++ {
			if got.bytes[l.Owner.ID][j] != 0 {
				return fmt.Errorf("byte %d is there twice", j)
			}
		}
		got.put(l.Owner.ID, l.Start, l.End, map[bool]byte{false: 1, true: 2}[l.Exclusive])
		if i == 0 {
			continue
		}
		p := table[i-1]
		if p.Owner == l.Owner && (p.End >= l.Start || p.End+1 == l.Start && p.Exclusive == l.Exclusive) {
			return fmt.Errorf("%v and %v are not in order, or not joined", p, l)
		}
	}
	if got != *m {
		return fmt.Errorf("the bytes differ")
	}
	return nil
}

func TestWithin_CutsToTheRange(t *testing.T) {
	table := filelock.Table{shared(a, 0, 9), exclusive(a, 20, filelock.EOF)}
	want := filelock.Table{shared(a, 5, 9), exclusive(a, 20, 25)}
	if got := table.Within(5, 25); !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	if got := table.Set(shared(b, 0, 3)).Of(b); !slices.Equal(got, filelock.Table{shared(b, 0, 3)}) {
		t.Errorf("%v", got)
	}
	if got := table.Set(shared(filelock.Owner{Session: 2}, 0, 3)).Without(1); len(got) != 1 || got[0].Owner.Session != 2 {
		t.Errorf("%v", got)
	}
}
