package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/failpoint"
	"github.com/objcache/objcache/server/external"
	"github.com/objcache/objcache/server/group"
	"github.com/objcache/objcache/server/replica"
)

// stateVersion is the layout of the state directory (docs/on-disk.md).
const stateVersion = 1

// state is a server's state directory, locked by this process.
type state struct {
	dir  string
	on   *Platform
	lock io.Closer
	id   identity
	new  bool // nothing was there
}

// identity is what identity.json holds.
type identity struct {
	Version  int                              `json:"version"`
	Server   string                           `json:"server"` // UUID
	Name     string                           `json:"name"`
	Cluster  string                           `json:"cluster"`
	Epoch    uint64                           `json:"epoch"`
	Group    uint32                           `json:"group"`
	Capacity int64                            `json:"capacity"`          // chosen at the first start, bytes
	Buckets  map[string]external.Capabilities `json:"buckets,omitempty"` // what the last probe found
	Members  []Member                         `json:"members,omitempty"` // of the cluster, as of the last start: for those who check the directory
}

func openState(cfg Config, on *Platform) (*state, error) {
	if err := on.Disk.MkdirAll(cfg.StateDir, 0o700); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	lock, err := on.Lock(filepath.Join(cfg.StateDir, "lock"))
	if err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	s := &state{dir: cfg.StateDir, on: on, lock: lock}
	if err := s.identify(cfg); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return s, nil
}

// identify reads who the directory belongs to, or writes it down at the first start.
func (s *state) identify(cfg Config) error {
	b, err := readFile(s.on.Disk, s.file())
	if errors.Is(err, fs.ErrNotExist) {
		s.new = true
		s.id = identity{Version: stateVersion, Server: uuid.NewString(), Name: cfg.Name, Cluster: cfg.Cluster, Epoch: cfg.Epoch, Buckets: map[string]external.Capabilities{}}
		for _, m := range cfg.Members {
			if m.Name == cfg.Name {
				s.id.Group = m.Group
			}
		}
		s.id.Members = cfg.Members
		return nil // written by remember, once the first start has succeeded so far
	}
	if err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	if err := json.Unmarshal(b, &s.id); err != nil {
		return objcache.Errorf(objcache.Corrupt, "%s: %w", s.file(), err)
	}
	switch {
	case s.id.Version != stateVersion:
		return objcache.Errorf(objcache.Invalid, "state directory %s has layout %d, this program writes %d", s.dir, s.id.Version, stateVersion)
	case s.id.Cluster != cfg.Cluster:
		return objcache.Errorf(objcache.Invalid, "state directory %s belongs to cluster %q, not %q", s.dir, s.id.Cluster, cfg.Cluster)
	case s.id.Name != cfg.Name:
		return objcache.Errorf(objcache.Invalid, "state directory %s belongs to server %q, not %q", s.dir, s.id.Name, cfg.Name)
	case s.id.Epoch != cfg.Epoch:
		return objcache.Errorf(objcache.Invalid, "state directory %s is of epoch %d, not %d", s.dir, s.id.Epoch, cfg.Epoch)
	}
	s.id.Members = cfg.Members
	if s.id.Buckets == nil {
		s.id.Buckets = map[string]external.Capabilities{}
	}
	return nil
}

func (s *state) file() string { return filepath.Join(s.dir, "identity.json") }

// remember writes the identity durably.
func (s *state) remember() error {
	b, err := json.MarshalIndent(s.id, "", "  ")
	if err != nil {
		return fmt.Errorf("encode identity: %w", err)
	}
	failpoint.Hit(failpoint.StartIdentity)
	if err := replaceFile(s.on.Disk, s.file(), append(b, '\n')); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	return nil
}

func readFile(disk vfs.FS, name string) ([]byte, error) {
	f, err := disk.Open(name)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(f)
	return b, errors.Join(err, f.Close())
}

// replaceFile is atomic and durable.
func replaceFile(disk vfs.FS, name string, b []byte) error {
	f, err := disk.Create(name+".tmp", vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := disk.Rename(name+".tmp", name); err != nil {
		return err
	}
	return syncDir(disk, disk.PathDir(name))
}

func syncDir(disk vfs.FS, dir string) error {
	d, err := disk.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// capacity is the budget of chunks in bytes: as configured, else 80 % of what the disk had free at the first start.
func (s *state) capacity(cfg Config) (int64, error) {
	if cfg.CapacityBytes > 0 {
		return cfg.CapacityBytes, s.remember()
	}
	if s.id.Capacity == 0 {
		free, err := s.free()
		if err != nil {
			return 0, err
		}
		s.id.Capacity = max(64<<20, free/10*8)
	}
	return s.id.Capacity, s.remember()
}

// free is what the disk of the state directory has left, bytes.
func (s *state) free() (int64, error) {
	n, err := s.on.Free(s.dir)
	if err != nil {
		return 0, fmt.Errorf("state directory: %w", err)
	}
	return n, nil
}

func (s *state) close() error { return s.lock.Close() }

// openRows opens the group's rows. The log is their write-ahead log, so Pebble's own is off.
func openRows(dir string, cfg Config, on *Platform, logger *slog.Logger) (*pebble.DB, error) {
	cache := pebble.NewCache(cfg.MemoryBytes / 8)
	defer cache.Unref()
	o := &pebble.Options{
		FS: on.Disk, Cache: cache, DisableWAL: true, MemTableSize: 16 << 20, MemTableStopWritesThreshold: 4, MaxOpenFiles: 512, Logger: pebbleLog{logger},
	}
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	on.Rows(o)
	db, err := pebble.Open(dir, o)
	if err != nil {
		return nil, objcache.Errorf(objcache.Corrupt, "rows in %s: %w", dir, err)
	}
	return db, nil
}

// pebbleLog sends Pebble's messages to slog. A fatal one ends the process: the rows and the log would part.
type pebbleLog struct{ l *slog.Logger }

func (pebbleLog) Infof(string, ...any)        {}
func (p pebbleLog) Errorf(f string, a ...any) { p.l.Error("rows", "error", fmt.Sprintf(f, a...)) }
func (p pebbleLog) Fatalf(f string, a ...any) { panic("rows: " + fmt.Sprintf(f, a...)) }

func openLog(dir string, cfg Config, on *Platform, g *group.Group, fatal func(error), logger *slog.Logger) (*replica.Replica, error) {
	conf := replica.Config{ID: cfg.Name, Group: g.ID(), Dir: dir, FS: on.Disk, Logger: logger, Fatal: fatal}
	conf.SegmentSize, conf.SnapshotEntries = failpoint.Number(failpoint.LogSegmentBytes), uint64(failpoint.Number(failpoint.SnapshotEntries))
	on.Log(&conf)
	return replica.Open(conf, g)
}
