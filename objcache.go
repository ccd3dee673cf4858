// Package objcache is the vocabulary of the system: inode numbers, chunks, attributes, clients,
// groups and views. Every other package speaks it; it imports none of them.
package objcache

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"strconv"
	"time"
)

// Ino numbers a file or directory. It is never used again, also after the file is gone:
// the high 16 bits are the cluster's epoch, the next 14 the group that made it, the rest comes from blocks that the group reserves in its log.
type Ino uint64

// RootIno is the directory that holds the bucket directories and nothing else.
const RootIno Ino = 1

// FirstFreeIno is the lowest number an allocator hands out within an epoch; those below are the root and the bucket directories.
const FirstFreeIno Ino = 1 << 33

// String formats the number in decimal, as st_ino shows it.
func (i Ino) String() string { return strconv.FormatUint(uint64(i), 10) }

// ChunkSize is the number of bytes of a file that one chunk holds (the paper's default).
const ChunkSize = 16 << 20

// MaxFileSize is the largest file, in bytes: S3's 5 TiB.
const MaxFileSize = 5 << 40

// InlineSize is the largest file, in bytes, whose content lives in its metadata.
const InlineSize = 4 << 10

// ChunkKey names one chunk: bytes [Index*ChunkSize, (Index+1)*ChunkSize) of file Ino.
type ChunkKey struct {
	Ino   Ino
	Index uint32
}

// Offset is the position in the file, in bytes, of the chunk's first byte.
func (k ChunkKey) Offset() int64 { return int64(k.Index) * ChunkSize }

// String is "ino/offset", the paper's key of a chunk.
func (k ChunkKey) String() string { return fmt.Sprintf("%d/%d", k.Ino, k.Offset()) }

// ChunkOf returns the index of the chunk that holds byte off of a file.
func ChunkOf(off int64) uint32 { return uint32(off / ChunkSize) }

// Range is the bytes [Off, Off+Len) of a file or chunk.
type Range struct {
	Off, Len int64
}

// End is the offset behind the last byte.
func (r Range) End() int64 { return r.Off + r.Len }

// Intersect returns the common part; Len is 0 when there is none.
func (r Range) Intersect(o Range) Range {
	lo, hi := max(r.Off, o.Off), min(r.End(), o.End())
	return Range{lo, max(0, hi-lo)}
}

// Attr is what stat(2) shows of an inode, with the version of its bytes.
type Attr struct {
	Ino   Ino
	Mode  uint32 // type and permission bits as in st_mode (S_IFMT | 07777)
	Nlink uint32
	UID   uint32
	GID   uint32
	Rdev  uint32
	Size  int64 // bytes
	Atime time.Time
	Mtime time.Time
	Ctime time.Time
	// Version grows whenever the file's bytes or size change, whoever changed them. Bytes cached under one version
	// are right for that version for ever.
	Version uint64
	// Target is a symlink's target, empty for everything else.
	Target string
	// Locked says that somebody has a lock on the file. Only an open tells it.
	Locked bool
}

// Type bits of Attr.Mode, as in st_mode.
const (
	ModeMask    = 0o170000
	ModeRegular = 0o100000
	ModeDir     = 0o040000
	ModeSymlink = 0o120000
	ModeFifo    = 0o010000
	ModeSocket  = 0o140000
	ModeChar    = 0o020000
	ModeBlock   = 0o060000
)

// IsDir reports whether the inode is a directory.
func (a Attr) IsDir() bool { return a.Mode&ModeMask == ModeDir }

// IsRegular reports whether the inode is a regular file.
func (a Attr) IsRegular() bool { return a.Mode&ModeMask == ModeRegular }

// Perm returns the permission bits.
func (a Attr) Perm() fs.FileMode { return fs.FileMode(a.Mode & 0o777) }

// DirEntry is one name of a directory. Cookie is the position behind it: stable while other names come and go.
type DirEntry struct {
	Name   string
	Cookie uint64
	Attr   Attr // Ino and Mode always; the rest when the listing asked for attributes
}

// SetAttr says which attributes to change: nil means leave alone.
type SetAttr struct {
	Mode  *uint32 // permission bits only
	UID   *uint32
	GID   *uint32
	Size  *int64
	Atime *time.Time
	Mtime *time.Time
	// KillPriv clears setuid and setgid as a write or chown by an unprivileged user does.
	KillPriv bool
}

// ClientID names one session of one mount. It is random and never used again.
type ClientID uint64

// SeqNum numbers the requests of one client.
type SeqNum uint64

// GroupID names a group, the unit on the ring.
type GroupID uint32

// TxID names one transaction: who asked, which request of theirs, and which attempt (term of the coordinator << 40 | counter).
type TxID struct {
	Client ClientID
	Seq    SeqNum
	TxSeq  uint64
}

// String is client.seq.txseq in hexadecimal, as logs and the metadata of uploads show it.
func (t TxID) String() string {
	return fmt.Sprintf("%x.%x.%x", uint64(t.Client), uint64(t.Seq), t.TxSeq)
}

// AppendBinary appends the id as 24 bytes, big endian, in the order of its fields.
func (t TxID) AppendBinary(b []byte) ([]byte, error) {
	b = binary.BigEndian.AppendUint64(b, uint64(t.Client))
	b = binary.BigEndian.AppendUint64(b, uint64(t.Seq))
	return binary.BigEndian.AppendUint64(b, t.TxSeq), nil
}

// ViewVersion orders views: first by the cluster's epoch, then by the change within it.
type ViewVersion struct {
	Epoch   uint64
	Version uint64
}

// Less reports whether v is older than o.
func (v ViewVersion) Less(o ViewVersion) bool {
	return v.Epoch < o.Epoch || v.Epoch == o.Epoch && v.Version < o.Version
}

// String is "epoch.version".
func (v ViewVersion) String() string { return fmt.Sprintf("%d.%d", v.Epoch, v.Version) }

// Lock is a lock on bytes Start to End, both included, of a file, as fcntl(2) or flock(2) ask for it.
type Lock struct {
	Ino       Ino
	Flock     bool   // the space of flock(2); it has nothing to do with that of fcntl(2)
	Owner     uint64 // within the mount: a process, or an open file description
	Exclusive bool
	Start     uint64
	End       uint64 // filelock.EOF: to the end of the file, however long it gets
	PID       uint32 // of who asks; 0 of a holder on another mount
}

// Statfs is what df(1) shows of a mount, in bytes and inodes.
type Statfs struct {
	Capacity, Free uint64
	Inodes         uint64
}
