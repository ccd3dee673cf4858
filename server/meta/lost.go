package meta

import (
	"encoding/binary"
	"errors"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/record"
)

// LossKey is the key of the row that says that a file's latest content was lost; at is when that was found out, ns.
func LossKey(at int64, ino objcache.Ino) []byte {
	b := binary.BigEndian.AppendUint64([]byte{spaceGroup, 'w'}, uint64(at))
	return binary.BigEndian.AppendUint64(b, uint64(ino))
}

// LossBounds are the bounds of the rows of LossKey.
func LossBounds() (lower, upper []byte) { return []byte{spaceGroup, 'w'}, []byte{spaceGroup, 'w' + 1} }

// loseInode marks a file whose latest content is gone for good. From then on nothing is written to it, and persist takes it back to what external
// storage has. Without a cause it takes the mark away: an upload had saved the content.
func (e *Eval) loseInode(s *rpc.LoseInode) error {
	in, err := e.inode(s.GetIno())
	if err != nil {
		return err
	}
	in.Lost = s.GetCause()
	return e.putOwing(in, e.facts.Now())
}

// revertInode ends a lost file. Its names go by RevertEntry in the same transaction, and so does what they owed; what it owes elsewhere it still owes.
func (e *Eval) revertInode(s *rpc.RevertInode) error {
	in, err := e.inode(s.GetIno())
	if err != nil {
		return err
	}
	if in.GetLost() == "" || in.GetIntent() != nil || in.GetVersion() != s.GetVersion() {
		return objcache.Errorf(objcache.Conflict, "inode %d has changed", s.GetIno())
	}
	if l := s.GetLoss(); l != nil {
		loss := &record.Loss{Path: l.GetPath(), Ino: l.GetIno(), At: l.GetAt(), Cause: l.GetCause(), Kept: l.GetKept()}
		if err := e.Put(LossKey(l.GetAt(), objcache.Ino(s.GetIno())), loss); err != nil {
			return err
		}
	}
	for _, l := range in.GetLinks() { // what stands there is the name's now
		in.Trash = slices.DeleteFunc(in.Trash, func(b *record.Base) bool { return b.GetDir() == l.GetDir() && b.GetName() == l.GetName() })
	}
	in.Version++ // readers of the lost one start over, and find nothing
	in.Generation++
	in.Lost, in.Links, in.Nlink = "", nil, 0
	return e.bury(in, e.facts.Now())
}

// revertEntry forgets a name and what it owes. What external storage holds under it is listed again.
func (e *Eval) revertEntry(s *rpc.RevertEntry) error {
	dir, err := e.directory(s.GetDir())
	if err != nil {
		return err
	}
	d := objcache.Ino(s.GetDir())
	row, err := Entry(e.b, d, s.GetName())
	if err != nil {
		return err
	}
	dir.Dir.Complete, dir.Dir.LoadedAt = false, 0
	dir.Dir.TableChanges++
	if s.GetDebt() {
		if row == nil {
			return e.putOwing(dir, e.facts.Now())
		}
		if row.GetBusy() == s.GetIno() {
			row.Busy = 0
		}
		row.Debts = slices.DeleteFunc(row.Debts, func(o *record.Debt) bool { return o.GetIno() == s.GetIno() })
		if row.GetIno() == 0 {
			err = e.putTombstone(d, s.GetName(), row)
		} else {
			err = e.Put(EntryKey(d, s.GetName()), row)
		}
		return errors.Join(err, e.putOwing(dir, e.facts.Now()))
	}
	if row.GetIno() != s.GetIno() {
		return objcache.Errorf(objcache.NotExist, "name %q in directory %d is now inode %d", s.GetName(), s.GetDir(), row.GetIno())
	}
	if isDirMode(row.GetMode()) {
		dir.Nlink--
	}
	dir.Dir.Children--
	if err := e.Delete(CookieKey(d, row.GetCookie())); err != nil {
		return err
	}
	if err := e.Delete(EntryKey(d, s.GetName())); err != nil {
		return err
	}
	return e.putOwing(dir, e.facts.Now())
}

// commitsOf notes in an inode which other groups commit chunks of its present version.
func commitsOf(in *record.Inode, groups []uint32) {
	if len(groups) > 0 && in.ChunkVersions == nil {
		in.ChunkVersions = map[uint32]uint64{}
	}
	for _, g := range groups {
		in.ChunkVersions[g] = in.GetVersion()
	}
}

// Missing reports whether a group that has bytes of a file up to a version lacks some that were committed and that external storage does not have.
func Missing(in *record.Inode, g objcache.GroupID, has uint64) bool {
	return in.GetChunkVersions()[uint32(g)] > max(has, in.GetBase().GetVersion())
}

// Losses calls f with the rows of what was lost, the oldest first, until it returns false.
func Losses(r Reader, f func(*record.Loss) bool) error {
	lo, hi := LossBounds()
	return Scan(r, lo, hi, func(_, v []byte) (bool, error) {
		l := &record.Loss{}
		if err := proto.Unmarshal(v, l); err != nil {
			return false, objcache.Errorf(objcache.Corrupt, "row of a loss: %w", err)
		}
		return f(l), nil
	})
}
