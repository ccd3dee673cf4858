package replica

import (
	"io"
	"strconv"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"
	"github.com/objcache/objcache"
	"github.com/objcache/objcache/failpoint"
)

const snapshotName = "snapshot"

// snapshotStore keeps one marker: up to which entry the state machine is durable by itself. The state is never copied.
type snapshotStore struct {
	fs   vfs.FS
	path string
	stop *failStop
}

var _ raft.SnapshotStore = (*snapshotStore)(nil)

// Create starts the marker for a snapshot at index; it counts from its Close on.
func (s *snapshotStore) Create(v raft.SnapshotVersion, index, term uint64, c raft.Configuration, ci uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	return &sinkMarker{store: s, m: marker{Raft: raft.SnapshotMeta{Version: v, ID: strconv.FormatUint(index, 10), Index: index, Term: term,
		Configuration: c, ConfigurationIndex: ci}}}, nil
}

// List returns the marker, if any.
func (s *snapshotStore) List() ([]*raft.SnapshotMeta, error) {
	m, err := s.read()
	if err != nil || m.Raft.Index == 0 {
		return nil, err
	}
	return []*raft.SnapshotMeta{&m.Raft}, nil
}

// read returns the marker, zero when there is none.
func (s *snapshotStore) read() (m marker, err error) {
	_, err = readAtomic(s.fs, s.path, &m)
	return m, err
}

// Open is never called: the state machine restores itself.
func (s *snapshotStore) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	return nil, nil, objcache.Errorf(objcache.NotSupported, "reading snapshot %s", id)
}

// marker is the file's content. Raft.Index may be a barrier's; Applied is the state machine's own count at that moment.
type marker struct {
	Raft    raft.SnapshotMeta
	Applied uint64
}

// sinkMarker is a marker on its way to the disk.
type sinkMarker struct {
	store *snapshotStore
	m     marker
}

func (k *sinkMarker) Write(p []byte) (int, error) { return len(p), nil }
func (k *sinkMarker) ID() string                  { return k.m.Raft.ID }
func (k *sinkMarker) Cancel() error               { return nil }

// Close makes the marker durable; the log before it may then be dropped.
func (k *sinkMarker) Close() error {
	failpoint.Hit(failpoint.LogMarkerBefore)
	err := writeAtomic(k.store.fs, k.store.path, k.m)
	failpoint.Hit(failpoint.LogMarkerAfter)
	return k.store.stop.check(err, "write", k.store.path)
}

// fsm hands raft's entries to the state machine.
type fsm struct{ sm StateMachine }

// Apply runs on raft's one apply goroutine.
func (f fsm) Apply(l *raft.Log) any {
	failpoint.Hit(failpoint.ApplyBefore)
	result := f.sm.Apply(l.Index, l.Term, l.Data)
	failpoint.Hit(failpoint.ApplyAfter)
	return result
}

// Snapshot costs nothing: the work is Persist's, which runs beside further Applies.
func (f fsm) Snapshot() (raft.FSMSnapshot, error) { return flush{f.sm, f.sm.Applied()}, nil }

// Restore is never asked for with NoSnapshotRestoreOnStart and one replica.
func (f fsm) Restore(rc io.ReadCloser) error {
	return objcache.Errorf(objcache.NotSupported, "restoring a state machine from a stream")
}

// flush is a snapshot that consists of the state machine's own durability.
type flush struct {
	sm      StateMachine
	applied uint64
}

// Persist makes the state durable at least up to the entry at which Snapshot was taken, and only then the marker that says so.
func (f flush) Persist(sink raft.SnapshotSink) error {
	if err := f.sm.Flush(); err != nil {
		return err
	}
	if k, ok := sink.(*sinkMarker); ok {
		k.m.Applied = f.applied
	}
	return sink.Close()
}

func (flush) Release() {}
