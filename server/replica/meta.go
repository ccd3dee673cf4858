package replica

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"
	"github.com/objcache/objcache"
	"github.com/objcache/objcache/failpoint"
)

const metaName = "meta"

// metaStore keeps what raft-wal knows of its segments and raft's few stable values (term, vote) in one small file that is
// replaced atomically. It is written at elections and rotations only.
type metaStore struct {
	fs   vfs.FS
	path string
	stop *failStop
	mu   struct {
		sync.Mutex
		state metaState
	}
}

type metaState struct {
	Log    types.PersistentState
	Stable map[string][]byte
	Made   []string // names of segments whose file is known to be on disk, whole
}

// openMeta reads the file, or starts an empty one. Segments without it are Corrupt: raft-wal would delete them as leftovers.
func openMeta(fsys vfs.FS, dir string, stop *failStop) (*metaStore, error) {
	m := &metaStore{fs: fsys, path: fsys.PathJoin(dir, metaName), stop: stop}
	found, err := readAtomic(fsys, m.path, &m.mu.state)
	if err != nil {
		return nil, err
	}
	if !found {
		names, err := fsys.List(dir)
		if err != nil {
			return nil, err
		}
		if i := slices.IndexFunc(names, func(n string) bool { return strings.HasSuffix(n, ".wal") }); i >= 0 {
			return nil, objcache.Errorf(objcache.Corrupt, "%s is missing beside %s", m.path, names[i])
		}
	}
	if m.mu.state.Stable == nil {
		m.mu.state.Stable = map[string][]byte{}
	}
	return m, nil
}

var _ types.MetaStore = (*metaStore)(nil)

// Load returns the segments as of the last CommitState.
func (m *metaStore) Load(string) (types.PersistentState, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.state.Log, nil
}

// CommitState replaces the list of segments; durable on return.
func (m *metaStore) CommitState(p types.PersistentState) error {
	return m.change(func(s *metaState) {
		s.Log = p
		s.Made = slices.DeleteFunc(slices.Clone(s.Made), func(name string) bool {
			return !slices.ContainsFunc(p.Segments, func(i types.SegmentInfo) bool { return segment.FileName(i) == name })
		})
	})
}

// markMade records that a segment's file is on disk; durable on return.
func (m *metaStore) markMade(name string) error {
	return m.change(func(s *metaState) { s.Made = append(slices.Clone(s.Made), name) })
}

// GetStable returns a stable value, nil when there is none.
func (m *metaStore) GetStable(key []byte) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.mu.state.Stable[string(key)]), nil
}

// SetStable sets a stable value; durable on return.
func (m *metaStore) SetStable(key, value []byte) error {
	return m.change(func(s *metaState) {
		s.Stable = maps.Clone(s.Stable)
		s.Stable[string(key)] = slices.Clone(value)
	})
}

// resetStable forgets the stable values of a group that has no entry yet; durable on return.
func (m *metaStore) resetStable() error {
	return m.change(func(s *metaState) { s.Stable = map[string][]byte{} })
}

// change replaces the state, on disk and then in memory. The lock is held over the write: changes are rare and must not overtake each other.
func (m *metaStore) change(f func(*metaState)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.stop.err(); err != nil {
		return err
	}
	next := m.mu.state
	f(&next)
	failpoint.Hit(failpoint.LogMetaBefore)
	if err := writeAtomic(m.fs, m.path, next); err != nil {
		return m.stop.check(err, "write", m.path)
	}
	failpoint.Hit(failpoint.LogMetaAfter)
	m.mu.state = next
	return nil
}

// Close does nothing: the file is not kept open.
func (m *metaStore) Close() error { return nil }
