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
	if in.GetLost() == "" || in.GetIntent() != nil || in.GetVersion() != s.GetVersion() || len(in.GetLinks()) != int(s.GetLinks()) {
		return objcache.Errorf(objcache.Conflict, "inode %d has changed", s.GetIno())
	}
	for _, l := range s.GetLosses() {
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
	row.Debts = slices.DeleteFunc(row.Debts, func(o *record.Debt) bool {
		return o.GetIno() == s.GetIno() || slices.Contains(s.GetSettled(), o.GetIno())
	})
	row.Ino, row.Mode, row.Cookie, row.Etag, row.Size, row.Modified, row.Unasked, row.Busy = 0, 0, 0, "", 0, 0, false, 0
	row.Changed = e.applied + 1
	return errors.Join(e.putTombstone(d, s.GetName(), row), e.putOwing(dir, e.facts.Now()))
}

// oweEntry gives a directory a debt back that it lost with a disk: until it is paid, nothing is listed under the name, and who has it waits.
func (e *Eval) oweEntry(s *rpc.OweEntry) error {
	if _, err := e.directory(s.GetDir()); err != nil {
		return err
	}
	row, err := Entry(e.b, objcache.Ino(s.GetDir()), s.GetName())
	if err != nil {
		return err
	}
	if row == nil {
		row = &record.DirEntry{}
	}
	if slices.ContainsFunc(row.GetDebts(), func(o *record.Debt) bool { return o.GetIno() == s.GetDebt().GetIno() }) {
		return nil
	}
	row.Debts, row.Changed = append(row.Debts, debtOf(s.GetDebt())), e.applied+1
	return e.Put(EntryKey(objcache.Ino(s.GetDir()), s.GetName()), row)
}

// commitsOf notes in an inode which other groups commit or cut chunks of its present version.
func commitsOf(in *record.Inode, s *rpc.FlushInode) {
	if s.GetTruncate() && s.GetSize() <= objcache.ChunkSize {
		in.ChunkVersions, in.CutVersions = nil, nil // what is left is here
	}
	note := func(m *map[uint32]uint64, groups []uint32) {
		for _, g := range groups {
			if *m == nil {
				*m = map[uint32]uint64{}
			}
			(*m)[g] = in.GetVersion()
		}
	}
	note(&in.ChunkVersions, s.GetGroups())
	note(&in.CutVersions, s.GetCutGroups())
}

// Missing reports whether a group that has bytes of a file up to a version (0: none) lacks some that were committed and that external storage does not
// have, or still has some that were cut off.
func Missing(in *record.Inode, g objcache.GroupID, has uint64) bool {
	persisted := in.GetBase().GetVersion()
	cut := in.GetCutVersions()[uint32(g)]
	return in.GetChunkVersions()[uint32(g)] > max(has, persisted) || has > 0 && cut > max(has, persisted)
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
