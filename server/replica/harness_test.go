package replica

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// journal is a state machine that remembers what was applied; Flush writes it to a file.
type journal struct {
	fs vfs.FS
	mu sync.Mutex
	st journalState
}

type journalState struct {
	Applied uint64
	Values  []uint64
}

func openJournal(t testing.TB, fsys vfs.FS) *journal {
	t.Helper()
	j := &journal{fs: fsys}
	if err := makeDir(fsys, "state"); err != nil {
		t.Fatal(err)
	}
	if _, err := readAtomic(fsys, "state/journal", &j.st); err != nil {
		t.Fatal(err)
	}
	return j
}

func (j *journal) Apply(index, _ uint64, data []byte) any {
	j.mu.Lock()
	defer j.mu.Unlock()
	if index > j.st.Applied {
		j.st.Applied = index
		j.st.Values = append(j.st.Values, binary.BigEndian.Uint64(data))
	}
	return len(j.st.Values)
}

func (j *journal) Applied() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.st.Applied
}

func (j *journal) Flush() error {
	j.mu.Lock()
	st := journalState{j.st.Applied, slices.Clone(j.st.Values)}
	j.mu.Unlock()
	return writeAtomic(j.fs, "state/journal", st)
}

func (j *journal) values() []uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.st.Values)
}

func testConfig(fsys vfs.FS) Config {
	return Config{ID: "a", Group: 7, Dir: "raft", FS: fsys, SegmentSize: 8 << 10, SnapshotEntries: 24,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Fatal: func(error) {}}
}

// start opens a replica and waits until it leads.
func start(t testing.TB, fsys vfs.FS) (*Replica, *journal) {
	t.Helper()
	j := openJournal(t, fsys)
	r, err := Open(testConfig(fsys), j)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.WaitLeader(context.Background()); err != nil {
		t.Fatal(err)
	}
	return r, j
}

// entry is a proposal of value v, padded to size bytes without long runs of zeros.
func entry(v uint64, size int) []byte {
	b := binary.BigEndian.AppendUint64(nil, v)
	for len(b) < size {
		b = append(b, byte(len(b))|1)
	}
	return b
}

func propose(t testing.TB, r *Replica, v uint64, size int) {
	t.Helper()
	got, err := r.Propose(context.Background(), entry(v, size))
	if err != nil {
		t.Fatal(err)
	}
	if got != int(v) {
		t.Fatalf("proposal %d: result %v", v, got)
	}
}

// checkPrefix wants 1, 2, ... k with lo <= k <= hi.
func checkPrefix(got []uint64, lo, hi int) error {
	for i, v := range got {
		if v != uint64(i+1) {
			return fmt.Errorf("applied %v: entry %d is %d", got, i+1, v)
		}
	}
	if len(got) < lo || len(got) > hi {
		return fmt.Errorf("%d entries applied, want %d to %d", len(got), lo, hi)
	}
	return nil
}

func closeReplica(t testing.TB, r *Replica) {
	t.Helper()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}
