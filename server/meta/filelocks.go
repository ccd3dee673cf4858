package meta

import (
	"encoding/binary"

	"google.golang.org/protobuf/proto"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/filelock"
	"github.com/objcache/objcache/server/record"
	"github.com/objcache/objcache/server/ring"
)

// LockFileLocks is the lock under which the file locks of an inode change. It is not that of the inode: a lock waits for no flush or upload.
func LockFileLocks(ino uint64) string {
	return string(binary.BigEndian.AppendUint64([]byte{'l'}, ino))
}

// FileLocksKey is the key of the row with an inode's file locks.
func FileLocksKey(ino objcache.Ino) []byte {
	b := binary.BigEndian.AppendUint64([]byte{spaceGroup, 'l'}, ring.HashInode(ino))
	return binary.BigEndian.AppendUint64(b, uint64(ino))
}

// FileLocksBounds are the bounds of the rows of FileLocksKey; ParseFileLocksKey is its inverse.
func FileLocksBounds() (lower, upper []byte) {
	return []byte{spaceGroup, 'l'}, []byte{spaceGroup, 'l' + 1}
}

// ParseFileLocksKey is the inverse of FileLocksKey.
func ParseFileLocksKey(key []byte) (objcache.Ino, bool) {
	if len(key) != 18 || key[0] != spaceGroup || key[1] != 'l' {
		return 0, false
	}
	return objcache.Ino(binary.BigEndian.Uint64(key[10:])), true
}

// FileLocks are the locks on one file, by space.
type FileLocks struct{ Posix, Flock filelock.Table }

// Space returns the locks of one of the two spaces.
func (l *FileLocks) Space(flock bool) *filelock.Table {
	if flock {
		return &l.Flock
	}
	return &l.Posix
}

// Empty reports whether nobody has a lock.
func (l *FileLocks) Empty() bool { return len(l.Posix) == 0 && len(l.Flock) == 0 }

// ReadFileLocks reads the locks on a file; the row of a file without any is absent.
func ReadFileLocks(r Reader, ino objcache.Ino) (FileLocks, error) {
	row := &record.FileLocks{}
	if _, err := Get(r, FileLocksKey(ino), row); err != nil {
		return FileLocks{}, err
	}
	return fileLocksOf(row), nil
}

// DecodeFileLocks parses the value of such a row.
func DecodeFileLocks(v []byte) (FileLocks, error) {
	row := &record.FileLocks{}
	err := decode(v, row)
	return fileLocksOf(row), err
}

func fileLocksOf(row *record.FileLocks) FileLocks {
	table := func(ls []*record.FileLock) (t filelock.Table) {
		for _, l := range ls {
			t = append(t, filelock.Lock{
				Owner: filelock.Owner{Session: l.GetClient(), ID: l.GetOwner()}, Exclusive: l.GetExclusive(), Start: l.GetStart(), End: l.GetEnd(), PID: l.GetPid(),
			})
		}
		return t
	}
	return FileLocks{Posix: table(row.GetPosix()), Flock: table(row.GetFlock())}
}

// FileLocksRow is the row for the locks on a file: a deletion when there are none.
func FileLocksRow(ino objcache.Ino, l FileLocks) (*record.Row, error) {
	if l.Empty() {
		return &record.Row{Key: FileLocksKey(ino)}, nil
	}
	rows := func(t filelock.Table) (ls []*record.FileLock) {
		for _, h := range t {
			ls = append(ls, &record.FileLock{Client: h.Owner.Session, Owner: h.Owner.ID, Exclusive: h.Exclusive, Start: h.Start, End: h.End, Pid: h.PID})
		}
		return ls
	}
	v, err := proto.MarshalOptions{Deterministic: true}.Marshal(&record.FileLocks{Posix: rows(l.Posix), Flock: rows(l.Flock)})
	if err != nil {
		return nil, objcache.Errorf(objcache.Invalid, "encode locks of inode %d: %w", ino, err)
	}
	return &record.Row{Key: FileLocksKey(ino), Value: v}, nil
}

// LockOf is a lock as a message tells it.
func LockOf(l *rpc.FileLock) filelock.Lock {
	return filelock.Lock{
		Owner: filelock.Owner{Session: l.GetClient(), ID: l.GetOwner()}, Exclusive: l.GetExclusive(), Start: l.GetStart(), End: l.GetEnd(), PID: l.GetPid(),
	}
}

// setLock takes a file lock or gives a range back. Busy when another owner's lock is in the way.
func (e *Eval) setLock(s *rpc.SetLock) error {
	l := LockOf(s.GetLock())
	if l.Start > l.End || l.End > filelock.EOF {
		return objcache.Errorf(objcache.Invalid, "lock of bytes %d to %d", l.Start, l.End)
	}
	all, err := ReadFileLocks(e.b, objcache.Ino(s.GetIno()))
	if err != nil {
		return err
	}
	t := all.Space(s.GetFlock())
	if s.GetUnlock() {
		*t = t.Unset(l.Owner, l.Start, l.End)
	} else {
		if _, err := e.inode(s.GetIno()); err != nil {
			return err
		}
		if by, busy := t.Conflict(l); busy {
			return objcache.Errorf(objcache.Busy, "bytes %d to %d of inode %d", by.Start, by.End, s.GetIno())
		}
		*t = t.Set(l)
	}
	row, err := FileLocksRow(objcache.Ino(s.GetIno()), all)
	if err != nil {
		return err
	}
	if row.Value == nil {
		return e.Delete(row.GetKey())
	}
	return e.b.Set(row.GetKey(), row.GetValue(), nil)
}
