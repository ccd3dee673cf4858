package meta

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/record"
)

func decode(b []byte, m proto.Message) error {
	if err := proto.Unmarshal(b, m); err != nil {
		return objcache.Errorf(objcache.Invalid, "decode %T: %w", m, err)
	}
	return nil
}

func debtOf(d *rpc.Debt) *record.Debt {
	return &record.Debt{Ino: d.GetIno(), Key: d.GetKey(), Etag: d.GetEtag(), Dir: d.GetDir()}
}

func isDirMode(mode uint32) bool { return mode&objcache.ModeMask == objcache.ModeDir }

// addEntry gives a name to an inode, possibly taking it from another.
func (e *Eval) addEntry(s *rpc.AddEntry) error {
	dir, err := e.directory(s.GetDir())
	if err != nil {
		return err
	}
	row, err := Entry(e.b, objcache.Ino(s.GetDir()), s.GetName())
	if err != nil {
		return err
	}
	live := row.GetIno() != 0
	switch {
	case s.GetPrefix() != "" && s.GetPrefix() != dir.GetDir().GetPrefix():
		return objcache.Errorf(objcache.Conflict, "directory %d has moved from %q", s.GetDir(), s.GetPrefix())
	case s.GetExpect() == 0 && live:
		return objcache.Errorf(objcache.Exist, "name %q in directory %d", s.GetName(), s.GetDir())
	case s.GetExpect() != 0 && row.GetIno() != s.GetExpect():
		return objcache.Errorf(objcache.Conflict, "name %q in directory %d is now inode %d", s.GetName(), s.GetDir(), row.GetIno())
	}
	if row == nil {
		row = &record.DirEntry{}
	}
	if live && isDirMode(row.GetMode()) {
		dir.Nlink--
	}
	if !live {
		dir.Dir.Children++
		dir.Dir.NextCookie++
		row.Cookie = dir.Dir.NextCookie
		if err := e.b.Set(CookieKey(objcache.Ino(s.GetDir()), row.GetCookie()), []byte(s.GetName()), nil); err != nil {
			return err
		}
	}
	if isDirMode(s.GetMode()) {
		dir.Nlink++
	}
	if s.GetDebt() != nil {
		row.Debts = append(row.Debts, debtOf(s.GetDebt()))
	}
	row.Ino, row.Mode = s.GetIno(), s.GetMode()&objcache.ModeMask
	row.Etag, row.Size, row.Modified, row.Unasked = "", 0, 0, false
	row.Changed = e.applied + 1
	return e.putChangedDir(dir, row, s.GetName(), s.GetNow())
}

func (e *Eval) putChangedDir(dir *record.Inode, row *record.DirEntry, name string, now int64) error {
	dir.Mtime, dir.Ctime = max(now, dir.GetMtime()), max(now, dir.GetCtime())
	if err := e.Put(EntryKey(objcache.Ino(dir.GetIno()), name), row); err != nil {
		return err
	}
	return e.putOwing(dir, now)
}

// removeEntry takes a name away. While external storage may still hold or list an object of that name, a tombstone stays.
func (e *Eval) removeEntry(s *rpc.RemoveEntry) error {
	dir, err := e.directory(s.GetDir())
	if err != nil {
		return err
	}
	row, err := Entry(e.b, objcache.Ino(s.GetDir()), s.GetName())
	if err != nil {
		return err
	}
	if row.GetIno() != s.GetExpect() {
		return objcache.Errorf(objcache.Conflict, "name %q in directory %d is now inode %d", s.GetName(), s.GetDir(), row.GetIno())
	}
	if isDirMode(row.GetMode()) {
		dir.Nlink--
	}
	dir.Dir.Children--
	if err := e.Delete(CookieKey(objcache.Ino(s.GetDir()), row.GetCookie())); err != nil {
		return err
	}
	if s.GetDebt() != nil {
		row.Debts = append(row.Debts, debtOf(s.GetDebt()))
	}
	row.Ino, row.Mode, row.Cookie, row.Etag, row.Size, row.Modified, row.Unasked = 0, 0, 0, "", 0, 0, false
	row.Changed = e.applied + 1
	dir.Mtime, dir.Ctime = max(s.GetNow(), dir.GetMtime()), max(s.GetNow(), dir.GetCtime())
	if err := e.putTombstone(objcache.Ino(s.GetDir()), s.GetName(), row); err != nil {
		return err
	}
	return e.putOwing(dir, s.GetNow())
}

// putTombstone keeps a row without an inode only as long as it protects something: a debt, or a listing that began before.
func (e *Eval) putTombstone(dir objcache.Ino, name string, row *record.DirEntry) error {
	if len(row.GetDebts()) == 0 && !e.facts.Listing(dir) {
		return e.Delete(EntryKey(dir, name))
	}
	return e.Put(EntryKey(dir, name), row)
}

// settleEntry tells a directory what external storage now holds for one of its names: the object of ino, or nothing of it any more.
func (e *Eval) settleEntry(s *rpc.SettleEntry) error {
	dir := objcache.Ino(s.GetDir())
	if err := e.touchTable(dir); err != nil || s.GetAttributes() {
		return err
	}
	row, err := Entry(e.b, dir, s.GetName())
	if err != nil || row == nil {
		return err
	}
	current := !s.GetGone() && row.GetIno() == s.GetIno()
	if !s.GetRelease() {
		settleDebts(row, s, current)
	}
	if row.GetBusy() == s.GetIno() {
		row.Busy = 0
	}
	row.Changed = e.applied + 1
	if current && s.GetKey() != "" && !s.GetRelease() {
		row.Etag, row.Size, row.Modified, row.Unasked = s.GetEtag(), s.GetSize(), -e.facts.Now(), false
	}
	if row.GetIno() == 0 {
		return e.putTombstone(dir, s.GetName(), row)
	}
	return e.Put(EntryKey(dir, s.GetName()), row)
}

// touchTable notes that a directory's table has to be written again.
func (e *Eval) touchTable(ino objcache.Ino) error {
	in, err := Inode(e.b, ino)
	if err != nil || in.GetDir() == nil || in.GetDead() {
		return err
	}
	in.Dir.TableChanges++
	return e.putOwing(in, e.facts.Now())
}

// settleDebts drops the debts that are paid: those of an inode whose objects of this name are gone, or that has the name again. An object written for a
// name that its inode has lost meanwhile is owed still, and now known. What others owe they settle themselves: they may have more than one object.
func settleDebts(row *record.DirEntry, s *rpc.SettleEntry, current bool) {
	if s.GetGone() || current {
		row.Debts = slices.DeleteFunc(row.Debts, func(d *record.Debt) bool { return d.GetIno() == s.GetIno() })
		return
	}
	for _, d := range row.GetDebts() {
		if d.GetIno() == s.GetIno() {
			d.Key, d.Etag = s.GetKey(), s.GetEtag()
		}
	}
}

// checkParent refuses a transaction that was planned when a directory stood elsewhere.
func (e *Eval) checkParent(s *rpc.CheckParent) error {
	in, err := e.directory(s.GetIno())
	if err != nil {
		return err
	}
	l := in.GetLinks()
	if len(l) != 1 || l[0].GetDir() != s.GetDir() || l[0].GetName() != s.GetName() {
		return objcache.Errorf(objcache.Conflict, "directory %d is not called %q in directory %d any more", s.GetIno(), s.GetName(), s.GetDir())
	}
	return nil
}

// killDir takes the last name of a directory away; it must be empty, and known to be.
func (e *Eval) killDir(s *rpc.KillDir) error {
	dir, err := e.directory(s.GetIno())
	if err != nil {
		return err
	}
	if dir.GetDir().GetChildren() > 0 {
		return objcache.Errorf(objcache.NotEmpty, "directory %d", s.GetIno())
	}
	if !dir.GetDir().GetComplete() {
		return objcache.Errorf(objcache.Conflict, "directory %d is not loaded", s.GetIno())
	}
	dir.Nlink, dir.Ctime, dir.Dead = 0, s.GetNow(), true
	return e.putOwing(dir, s.GetNow()) // its debt stands in the parent's row: persist settles it
}

// hasRows reports whether a directory has rows of entries, tombstones included.
func (e *Eval) hasRows(dir objcache.Ino) (bool, error) {
	found := false
	err := ScanEntries(e.b, dir, "", func(string, *record.DirEntry) (bool, error) {
		found = true
		return false, nil
	})
	return found, err
}

// dropTombstones deletes what is left of a dead directory's rows.
func (e *Eval) dropTombstones(dir objcache.Ino) error {
	var names []string
	err := ScanEntries(e.b, dir, "", func(name string, _ *record.DirEntry) (bool, error) {
		names = append(names, name)
		return true, nil
	})
	if err != nil {
		return err
	}
	for _, n := range names {
		if err := e.Delete(EntryKey(dir, n)); err != nil {
			return err
		}
	}
	return nil
}
