package replica

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/hashicorp/raft"
	"github.com/objcache/objcache"
	"github.com/objcache/objcache/failpoint"
)

// logStore stands between raft and raft-wal: it adds a checksum to every entry, since raft-wal verifies nothing when it reads one,
// refuses to go on after a failure, and counts the bytes stored.
type logStore struct {
	raft.LogStore
	stop   *failStop
	stored func(entries, bytes int)
}

// GetLog reads an entry; one that does not match its checksum is Corrupt.
func (l *logStore) GetLog(index uint64, e *raft.Log) error {
	if err := l.LogStore.GetLog(index, e); err != nil {
		return err
	}
	if e.Index != index || string(e.Extensions) != string(checksum(e)) {
		return objcache.Errorf(objcache.Corrupt, "raft log entry %d does not match its checksum", index)
	}
	e.Extensions = nil
	return nil
}

// StoreLog is StoreLogs of one entry.
func (l *logStore) StoreLog(e *raft.Log) error { return l.StoreLogs([]*raft.Log{e}) }

// StoreLogs appends; durable on return. The entries stay the caller's.
func (l *logStore) StoreLogs(es []*raft.Log) error {
	if err := l.stop.err(); err != nil {
		return err
	}
	sealed := make([]raft.Log, len(es))
	refs := make([]*raft.Log, len(es))
	n := 0
	for i, e := range es {
		sealed[i] = *e
		sealed[i].Extensions = checksum(e)
		refs[i] = &sealed[i]
		n += len(e.Data)
	}
	failpoint.Hit(failpoint.LogAppendBefore)
	if err := l.LogStore.StoreLogs(refs); err != nil {
		return l.stop.check(err, "store", "entries")
	}
	failpoint.Hit(failpoint.LogAppendAfter)
	l.stored(len(es), n)
	return nil
}

// DeleteRange drops entries at either end of the log.
func (l *logStore) DeleteRange(lo, hi uint64) error {
	if err := l.stop.err(); err != nil {
		return err
	}
	failpoint.Hit(failpoint.LogCutBefore)
	err := l.LogStore.DeleteRange(lo, hi)
	failpoint.Hit(failpoint.LogCutAfter)
	return l.stop.check(err, "delete", fmt.Sprintf("entries %d to %d", lo, hi))
}

// IsMonotonic makes raft truncate the log before it installs a snapshot, without which it can loop for ever
// (hashicorp/raft issue 697).
func (l *logStore) IsMonotonic() bool { return true }

// checksum is the CRC-32C of an entry's index, term, type and data. It travels in Extensions, which nothing else uses.
func checksum(e *raft.Log) []byte {
	var head [17]byte
	binary.LittleEndian.PutUint64(head[:], e.Index)
	binary.LittleEndian.PutUint64(head[8:], e.Term)
	head[16] = byte(e.Type)
	sum := crc32.Update(crc32.Checksum(head[:], castagnoli), castagnoli, e.Data)
	return binary.LittleEndian.AppendUint32(nil, sum)
}
