package meta

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"google.golang.org/protobuf/proto"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/record"
)

// LockOfRow is the lock under which a row changes; empty for rows that no step changes.
func LockOfRow(key []byte) string {
	switch RowKind(key) {
	case 'i', 'e', 'c':
		return LockInode(binary.BigEndian.Uint64(key[10:]))
	case 'x':
		return LockChunks(binary.BigEndian.Uint64(key[10:]))
	}
	if _, ino, ok := ParseDirtyKey(key); ok {
		return LockInode(uint64(ino))
	}
	if ino, ok := ParseFileLocksKey(key); ok {
		return LockFileLocks(uint64(ino))
	}
	return ""
}

// lockOfRepair is the lock that all rows of a repair share; empty when they do not.
func lockOfRepair(s *rpc.RepairRows) string {
	lock := ""
	for _, r := range s.GetRows() {
		l := LockOfRow(r.GetKey())
		if l == "" || lock != "" && l != lock {
			return ""
		}
		lock = l
	}
	for _, f := range s.GetFree() {
		l := LockChunks(f.GetIno())
		if lock != "" && l != lock {
			return ""
		}
		lock = l
	}
	return lock
}

// repairRows replaces rows that are still what the planner of the repair saw: Conflict when one is not, and nothing changes.
func (e *Eval) repairRows(s *rpc.RepairRows) error {
	if lockOfRepair(s) == "" {
		return objcache.Errorf(objcache.Invalid, "a repair of %d rows that no single lock guards", len(s.GetRows()))
	}
	for _, r := range s.GetRows() {
		if err := e.repairRow(r, s.GetSpare()); err != nil {
			return err
		}
	}
	for _, f := range s.GetFree() {
		k := objcache.ChunkKey{Ino: objcache.Ino(f.GetIno()), Index: f.GetChunk()}
		c, err := e.chunk(k)
		if err != nil {
			return err
		}
		if names(c)[f.GetId()] != nil {
			return objcache.Errorf(objcache.Conflict, "extent %d is named by chunk %v", f.GetId(), k)
		}
		e.dropped = append(e.dropped, &record.Dropped{Id: f.GetId(), Ino: f.GetIno(), Chunk: f.GetChunk()})
	}
	return nil
}

func (e *Eval) repairRow(r *rpc.RepairRow, spare []uint64) error {
	now, err := e.raw(r.GetKey())
	if err != nil {
		return err
	}
	if (now == nil) != (r.Before == nil) || !bytes.Equal(now, r.GetBefore()) {
		return objcache.Errorf(objcache.Conflict, "row %x has changed since it was found to be wrong", r.GetKey())
	}
	if r.GetKeep() {
		return nil
	}
	if RowKind(r.GetKey()) == 'x' {
		if err := e.dropRepaired(r, spare); err != nil {
			return err
		}
	}
	if r.After == nil {
		return e.Delete(r.GetKey())
	}
	return e.b.Set(r.GetKey(), r.GetAfter(), nil)
}

// dropRepaired gives back the bytes that a chunk's row does not name any more, and no other.
func (e *Eval) dropRepaired(r *rpc.RepairRow, spare []uint64) error {
	before, after := &record.Chunk{}, &record.Chunk{}
	if err := errors.Join(proto.Unmarshal(r.GetBefore(), before), proto.Unmarshal(r.GetAfter(), after)); err != nil {
		return objcache.Errorf(objcache.Corrupt, "row %x: %w", r.GetKey(), err)
	}
	k := objcache.ChunkKey{Ino: objcache.Ino(binary.BigEndian.Uint64(r.GetKey()[10:])), Index: binary.BigEndian.Uint32(r.GetKey()[18:])}
	was := names(before)
	for _, id := range spare {
		delete(was, id)
	}
	e.dropUnnamed(k, was, after)
	return nil
}

// raw reads a row as it is; nil when there is none.
func (e *Eval) raw(key []byte) ([]byte, error) {
	v, c, err := e.b.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read row %x: %w", key, err)
	}
	out := append([]byte{}, v...)
	return out, c.Close()
}
