package meta

import (
	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/record"
)

// vanishDir ends a directory that another client deleted: its last listing showed neither its own object nor any below it.
// Conflict when anything here says otherwise: then it stays, as a directory that was made here. Its entry goes by RemoveEntry in the same transaction.
func (e *Eval) vanishDir(s *rpc.VanishDir) error {
	in, err := e.directory(s.GetIno())
	if err != nil {
		return err
	}
	l, d := in.GetLinks(), in.GetDir()
	if len(l) != 1 || l[0].GetDir() != s.GetDir() || l[0].GetName() != s.GetName() {
		return objcache.Errorf(objcache.Conflict, "directory %d is not called %q in directory %d any more", s.GetIno(), s.GetName(), s.GetDir())
	}
	if Owes(in) || !d.GetComplete() || d.GetChildren() > 0 || d.GetMarker() || d.GetLoadedAt() != s.GetLoadedAt() {
		return objcache.Errorf(objcache.Conflict, "directory %d is in use", s.GetIno())
	}
	owed := false
	err = ScanEntries(e.b, objcache.Ino(s.GetIno()), "", func(_ string, row *record.DirEntry) (bool, error) {
		owed = len(row.GetDebts()) > 0 || row.GetBusy() != 0
		return !owed, nil
	})
	if err != nil {
		return err
	}
	if owed {
		return objcache.Errorf(objcache.Conflict, "directory %d has objects that are still to be deleted", s.GetIno())
	}
	if err := e.dropTombstones(objcache.Ino(s.GetIno())); err != nil {
		return err
	}
	return e.deleteInode(in)
}
