package meta

import (
	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/record"
)

// Fresh reports whether a listing requested at a log index may speak about a name: nothing happened to the name since, and
// nothing is owed for it.
func Fresh(row *record.DirEntry, requestedAt uint64) bool {
	return row == nil || row.GetChanged() <= requestedAt && len(row.GetDebts()) == 0
}

// mergePage merges one page of a listing. It inserts only names that have no row, refreshes only rows that nothing happened to since
// the page was requested, and removes clean names that the page should have shown.
func (e *Eval) mergePage(s *rpc.MergePage) error {
	dir, err := e.directory(s.GetDir())
	if err != nil {
		return err
	}
	dir.Dir.Foreign = dir.GetDir().GetForeign() || s.GetForeign()
	for _, l := range s.GetEntries() {
		if err := e.mergeEntry(dir, s, l); err != nil {
			return err
		}
	}
	if s.GetComplete() {
		dir.Dir.Complete = true
		dir.Dir.LoadedAt = s.GetBegan()
		if err := e.mergeMarker(dir, s); err != nil {
			return err
		}
		if err := e.sweepTombstones(s); err != nil {
			return err
		}
	}
	return e.Put(InodeKey(objcache.Ino(s.GetDir())), dir)
}

func (e *Eval) mergeEntry(dir *record.Inode, s *rpc.MergePage, l *rpc.Listed) error {
	d := objcache.Ino(s.GetDir())
	row, err := Entry(e.b, d, l.GetName())
	if err != nil {
		return err
	}
	if !Fresh(row, s.GetRequestedAt()) {
		return nil
	}
	if l.GetReplaces() != 0 {
		return e.replaceEntry(dir, row, l)
	}
	if row.GetIno() != 0 {
		return e.refreshEntry(dir, row, l)
	}
	if l.GetIno() == 0 { // vanished, and already without an inode
		if row != nil {
			return e.Delete(EntryKey(d, l.GetName()))
		}
		return nil
	}
	in, err := e.putListed(l)
	if err != nil {
		return err
	}
	dir.Dir.NextCookie++
	dir.Dir.Children++
	if l.GetDir() {
		dir.Nlink++
	}
	row = &record.DirEntry{
		Ino: l.GetIno(), Mode: in.GetMode() & objcache.ModeMask, Etag: l.GetEtag(), Size: l.GetSize(), Modified: l.GetModified(),
		Cookie: dir.GetDir().GetNextCookie(), Changed: 0, Unasked: l.GetUnasked(),
	}
	if err := e.b.Set(CookieKey(d, row.GetCookie()), []byte(l.GetName()), nil); err != nil {
		return err
	}
	return e.Put(EntryKey(d, l.GetName()), row)
}

// refreshEntry takes over the listing's word on a clean file; the inode's own row changes by RefreshBase in the same transaction.
func (e *Eval) refreshEntry(dir *record.Inode, row *record.DirEntry, l *rpc.Listed) error {
	d := objcache.Ino(dir.GetIno())
	switch {
	case l.GetDir() || isDirMode(row.GetMode()) || row.GetEtag() == "":
		return nil
	case l.GetEtag() == "": // vanished
		dir.Dir.Children--
		if err := e.Delete(CookieKey(d, row.GetCookie())); err != nil {
			return err
		}
		return e.Delete(EntryKey(d, l.GetName()))
	}
	row.Etag, row.Size, row.Modified, row.Unasked = l.GetEtag(), l.GetSize(), l.GetModified(), l.GetUnasked()
	return e.Put(EntryKey(d, l.GetName()), row)
}

// putListed makes the row of a listed inode, if it is this group's; else a step of its own does.
func (e *Eval) putListed(l *rpc.Listed) (*record.Inode, error) {
	in, err := DecodeInode(l.GetAttributes())
	if err != nil || !e.facts.Owns(objcache.ChunkKey{Ino: objcache.Ino(l.GetIno())}) {
		return in, err
	}
	return in, e.Put(InodeKey(objcache.Ino(l.GetIno())), in)
}

// replaceEntry gives the name of a clean file to a new inode of another type; the old one ends by RefreshBase in the same transaction.
func (e *Eval) replaceEntry(dir *record.Inode, row *record.DirEntry, l *rpc.Listed) error {
	if row.GetIno() != l.GetReplaces() {
		return objcache.Errorf(objcache.Conflict, "name %q in directory %d is now inode %d", l.GetName(), dir.GetIno(), row.GetIno())
	}
	in, err := e.putListed(l)
	if err != nil {
		return err
	}
	row.Ino, row.Mode, row.Unasked = l.GetIno(), in.GetMode()&objcache.ModeMask, l.GetUnasked()
	row.Etag, row.Size, row.Modified = l.GetEtag(), l.GetSize(), l.GetModified()
	return e.Put(EntryKey(objcache.Ino(dir.GetIno()), l.GetName()), row)
}

// mergeMarker takes over what the whole listing showed of the directory's own object.
func (e *Eval) mergeMarker(dir *record.Inode, s *rpc.MergePage) error {
	if d := dir.GetDir(); !d.GetMoving() && d.GetMarkerAt() <= s.GetRequestedAt() {
		d.Marker, d.MarkerModified = s.GetMarker() != 0, s.GetMarker()
	}
	return takeAttributes(dir, s.GetAttributes(), false)
}

// sweepTombstones drops tombstones that protected against listings older than this one.
func (e *Eval) sweepTombstones(s *rpc.MergePage) error {
	var gone [][]byte
	err := ScanEntries(e.b, objcache.Ino(s.GetDir()), "", func(name string, row *record.DirEntry) (bool, error) {
		if row.GetIno() == 0 && Fresh(row, s.GetRequestedAt()) {
			gone = append(gone, EntryKey(objcache.Ino(s.GetDir()), name))
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	for _, k := range gone {
		if err := e.Delete(k); err != nil {
			return err
		}
	}
	return nil
}
