package replica

import (
	"encoding/binary"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// inspect returns the values that a state machine would hold if it was brought up with what Inspect hands out.
func inspect(t *testing.T, fsys vfs.FS, j *journal, op string) []uint64 {
	t.Helper()
	values := j.values()
	in, err := Inspect(fsys, "raft", j.Applied(), func(_, _ uint64, data []byte) { values = append(values, binary.BigEndian.Uint64(data)) })
	if err != nil || len(in.Damages) > 0 {
		t.Fatalf("crash before %s: Inspect: %+v, %v", op, in, err)
	}
	return values
}

func TestInspect_ChangesNothingAndKnowsHowFarTheLogReaches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := filled(t, 30)
		path := logFiles(t, disk)[1]
		stray := "raft/00000000000000000099-0000000000000099.wal"
		fsys := rewrite(t, disk, path, slices.Clone)
		f, err := fsys.Create(stray, vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		before := logFiles(t, fsys)
		in, err := Inspect(fsys, "raft", 0, func(uint64, uint64, []byte) {})
		if err != nil || len(in.Damages) > 0 || len(in.Strays) != 1 || in.First != 1 || in.Last < 30 || in.Durable != 0 {
			t.Errorf("%+v, %v", in, err)
		}
		if after := logFiles(t, fsys); !slices.Equal(before, after) {
			t.Errorf("files %v, then %v", before, after)
		}
	})
}
