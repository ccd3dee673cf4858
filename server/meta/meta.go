// Package meta is what a group knows of its inodes, directories and chunks: rows in Pebble, and the rules by which a step of a
// transaction changes them. It promises that the same rows and the same step give the same effects: it has no clock, no
// randomness and no network, and it writes nothing itself. It does not know transactions, logs or where bytes lie on a disk.
package meta

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"google.golang.org/protobuf/proto"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/record"
	"github.com/objcache/objcache/server/ring"
)

// Rows of replicated state, by their first byte. Rows of space 'H' carry the ring hash of what they belong to, so that an arc of
// the ring is one range:
//
//	H hash8 i ino8                      record.Inode
//	H hash8 e ino8 name                 record.DirEntry
//	H hash8 c ino8 cookie8              name of the entry at that readdir position
//	H hash8 x ino8 chunk4               record.Chunk
//	G d since8 ino8                     an inode that owes external storage something (empty value)
//	G p txid24                          record.Prepared
//	G c txid24                          record.Decision
//	G r client8 seq8                    record.Result
//	G a                                 record.Allocation
//	G v                                 record.View
//	G b incarnation                     record.Live: the bar of a coordinator's incarnation
//	G f incarnation txseq8              a transaction of it that was decided here (empty value)
//	G l hash8 ino8                      record.FileLocks
//	G s hash8 client8                   record.Session
//	G e client8                         record.Ended
//	G k client8                         record.Acknowledged
//
// Numbers are big endian. Rows of space 'L' are this replica's own (server/group).
const (
	spaceHashed = 'H'
	spaceGroup  = 'G'
)

func hashed(h uint64, kind byte, ino objcache.Ino, extra int) []byte {
	b := make([]byte, 0, 1+8+1+8+extra)
	b = append(b, spaceHashed)
	b = binary.BigEndian.AppendUint64(b, h)
	b = append(b, kind)
	return binary.BigEndian.AppendUint64(b, uint64(ino))
}

// InodeKey is the key of an inode's row.
func InodeKey(ino objcache.Ino) []byte { return hashed(ring.HashInode(ino), 'i', ino, 0) }

// EntryKey is the key of a directory entry's row.
func EntryKey(dir objcache.Ino, name string) []byte {
	return append(hashed(ring.HashInode(dir), 'e', dir, len(name)), name...)
}

// CookieKey is the key of the row that finds an entry by its readdir position.
func CookieKey(dir objcache.Ino, cookie uint64) []byte {
	return binary.BigEndian.AppendUint64(hashed(ring.HashInode(dir), 'c', dir, 8), cookie)
}

// ChunkKey is the key of a chunk's row.
func ChunkKey(k objcache.ChunkKey) []byte {
	return binary.BigEndian.AppendUint32(hashed(ring.HashChunk(k), 'x', k.Ino, 4), k.Index)
}

// DirtyKey is the key of the row that says since when (nanoseconds) an inode owes external storage something.
func DirtyKey(since int64, ino objcache.Ino) []byte {
	b := binary.BigEndian.AppendUint64([]byte{spaceGroup, 'd'}, uint64(since))
	return binary.BigEndian.AppendUint64(b, uint64(ino))
}

// ParseDirtyKey is the inverse of DirtyKey.
func ParseDirtyKey(key []byte) (since int64, ino objcache.Ino, ok bool) {
	if len(key) != 18 || key[0] != spaceGroup || key[1] != 'd' {
		return 0, 0, false
	}
	return int64(binary.BigEndian.Uint64(key[2:])), objcache.Ino(binary.BigEndian.Uint64(key[10:])), true
}

// DirtyBounds are the bounds of the rows of DirtyKey.
func DirtyBounds() (lower, upper []byte) { return []byte{spaceGroup, 'd'}, []byte{spaceGroup, 'd' + 1} }

func txKey(kind byte, tx *record.TxID) []byte {
	b := binary.BigEndian.AppendUint64([]byte{spaceGroup, kind}, tx.GetClient())
	b = binary.BigEndian.AppendUint64(b, tx.GetSeq())
	return binary.BigEndian.AppendUint64(b, tx.GetTxSeq())
}

// PreparedKey is the key of a participant's promise.
func PreparedKey(tx *record.TxID) []byte { return txKey('p', tx) }

// PreparedBounds are the bounds of the rows of PreparedKey.
func PreparedBounds() (lower, upper []byte) {
	return []byte{spaceGroup, 'p'}, []byte{spaceGroup, 'p' + 1}
}

// DecisionKey is the key of a coordinator's decision.
func DecisionKey(tx *record.TxID) []byte { return txKey('c', tx) }

// DecisionBounds are the bounds of the rows of DecisionKey.
func DecisionBounds() (lower, upper []byte) {
	return []byte{spaceGroup, 'c'}, []byte{spaceGroup, 'c' + 1}
}

// ResultKey is the key of a request's result.
func ResultKey(client objcache.ClientID, seq objcache.SeqNum) []byte {
	b := binary.BigEndian.AppendUint64([]byte{spaceGroup, 'r'}, uint64(client))
	return binary.BigEndian.AppendUint64(b, uint64(seq))
}

// ResultBounds are the bounds of the rows of ResultKey; ParseResultKey is its inverse.
func ResultBounds() (lower, upper []byte) {
	return []byte{spaceGroup, 'r'}, []byte{spaceGroup, 'r' + 1}
}

// ParseResultKey is the inverse of ResultKey.
func ParseResultKey(key []byte) (client objcache.ClientID, seq objcache.SeqNum, ok bool) {
	if len(key) != 18 || key[0] != spaceGroup || key[1] != 'r' {
		return 0, 0, false
	}
	return objcache.ClientID(binary.BigEndian.Uint64(key[2:])), objcache.SeqNum(binary.BigEndian.Uint64(key[10:])), true
}

// AllocationKey is the key of the numbers that the group has reserved.
func AllocationKey() []byte { return []byte{spaceGroup, 'a'} }

// ViewKey is the key of the view under which evaluations count.
func ViewKey() []byte { return []byte{spaceGroup, 'v'} }

// BarKey is the key of what a participant remembers of a coordinator's incarnation: below which TxSeq no Prepare is promised any more.
func BarKey(incarnation string) []byte { return append([]byte{spaceGroup, 'b'}, incarnation...) }

// FinishedKey is the key of a transaction of an incarnation that was decided here. Those of one incarnation are in the order of their TxSeqs.
func FinishedKey(incarnation string, txSeq uint64) []byte {
	b := make([]byte, 0, 2+len(incarnation)+8)
	b = append(append(b, spaceGroup, 'f'), incarnation...)
	return binary.BigEndian.AppendUint64(b, txSeq)
}

// ReplicatedBounds are the bounds of all rows that are the same on every replica.
func ReplicatedBounds() (lower, upper []byte) { return []byte{spaceGroup}, []byte{spaceHashed + 1} }

// RowKind returns the kind letter of a hashed row ('i', 'e', 'x'...), 0 for other rows.
func RowKind(key []byte) byte {
	if len(key) > 9 && key[0] == spaceHashed {
		return key[9]
	}
	return 0
}

// EntryBounds are the bounds of the entries of a directory behind (and without) the name after.
func EntryBounds(dir objcache.Ino, after string) (lower, upper []byte) {
	lower = EntryKey(dir, after)
	if after != "" {
		lower = append(lower, 0)
	}
	return lower, hashed(ring.HashInode(dir), 'e', dir+1, 0)
}

// CookieBounds are the bounds of the readdir positions of a directory behind cookie.
func CookieBounds(dir objcache.Ino, cookie uint64) (lower, upper []byte) {
	return CookieKey(dir, cookie+1), hashed(ring.HashInode(dir), 'c', dir+1, 0)
}

// EntryName returns the name in an entry's key.
func EntryName(key []byte) string { return string(key[18:]) }

// Reader is anything rows can be read from: a database, a snapshot or an indexed batch.
type Reader interface {
	pebble.Reader
}

// Get reads one row into m and reports whether it is there. Corrupt when the row does not parse.
func Get(r Reader, key []byte, m proto.Message) (bool, error) {
	v, c, err := r.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read row %x: %w", key, err)
	}
	err = proto.Unmarshal(v, m)
	if cerr := c.Close(); err == nil && cerr != nil {
		return false, fmt.Errorf("read row %x: %w", key, cerr)
	}
	if err != nil {
		return false, objcache.Errorf(objcache.Corrupt, "row %x: %w", key, err)
	}
	return true, nil
}

// Inode reads an inode's row; nil when there is none.
func Inode(r Reader, ino objcache.Ino) (*record.Inode, error) {
	in := &record.Inode{}
	ok, err := Get(r, InodeKey(ino), in)
	if err != nil || !ok {
		return nil, err
	}
	return in, nil
}

// Entry reads a directory entry's row, which may be a tombstone; nil when there is none.
func Entry(r Reader, dir objcache.Ino, name string) (*record.DirEntry, error) {
	e := &record.DirEntry{}
	ok, err := Get(r, EntryKey(dir, name), e)
	if err != nil || !ok {
		return nil, err
	}
	return e, nil
}

// Chunk reads a chunk's row; nil when nothing was ever committed to it.
func Chunk(r Reader, k objcache.ChunkKey) (*record.Chunk, error) {
	c := &record.Chunk{}
	ok, err := Get(r, ChunkKey(k), c)
	if err != nil || !ok {
		return nil, err
	}
	return c, nil
}
