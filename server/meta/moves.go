package meta

import (
	"slices"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/record"
)

// What a directory owes external storage for prefixes that it had: Trash holds one row for each name, with the prefix whose marker and table still have
// to be deleted, or without one when only the name's debt is left.

// endPersistDir notes how far a directory's objects have come.
func (e *Eval) endPersistDir(in *record.Inode, s *rpc.EndPersist) error {
	d := in.GetDir()
	if s.GetHeading() != "" {
		if len(in.GetLinks()) == 1 && d.GetHeading() != d.GetPrefix() { // a directory above it moved again before it was there
			oweFor(in, d.GetHeading(), s.GetHeading(), in.GetLinks()[0])
		}
		d.Heading = s.GetHeading()
	}
	if s.GetMoved() {
		d.Moving = false
		d.TableChanges++
	}
	if s.GetTable() > 0 {
		d.TableWritten = s.GetTable()
	}
	if s.GetMarker() != "" {
		leavePrefix(in, s.GetMarker())
		d.Marker, d.Prefix, d.MarkerAt, d.MarkerModified = true, s.GetMarker(), e.applied+1, -e.facts.Now()
		in.Dirty, in.AttrDirty = false, in.GetAttrDirty() && in.GetCtime() > s.GetAsOf()
	}
	switch {
	case s.GetDetour() != "" && !in.GetDead() && d.GetDetour() == "":
		d.Detour, d.Moving = s.GetDetour(), true
	case s.GetDetourEnd() && d.GetDetour() != "":
		d.Detour, d.Moving = "", true
	}
	cleanTrash(in, s.GetTrashCleaned())
	return settleTrash(in, s.GetTrashSettled())
}

func cleanTrash(in *record.Inode, keys []string) {
	d := in.GetDir()
	for _, b := range in.GetTrash() {
		// Where a directory stands nothing was deleted; if it has been renamed since, that is what it owes now.
		if slices.Contains(keys, b.GetKey()) && !(d.GetMoving() && b.GetKey() == d.GetPrefix()) {
			b.Key = ""
		}
	}
	if in.GetDead() && slices.Contains(keys, d.GetPrefix()) {
		d.Prefix = ""
	}
	if in.GetDead() && slices.Contains(keys, d.GetHeading()) {
		d.Heading = ""
	}
}

// settleTrash drops what is owed for names. A directory that has had such a name again meanwhile, with objects under it, owes for it anew: then all of
// it comes later.
func settleTrash(in *record.Inode, names []*rpc.Name) error {
	is := func(b *record.Base) bool {
		return slices.ContainsFunc(names, func(n *rpc.Name) bool { return n.GetDir() == b.GetDir() && n.GetName() == b.GetName() })
	}
	for _, b := range in.GetTrash() {
		if is(b) && b.GetKey() != "" {
			return objcache.Errorf(objcache.Conflict, "inode %d owes for the name %q in directory %d again", in.GetIno(), b.GetName(), b.GetDir())
		}
	}
	in.Trash = slices.DeleteFunc(in.Trash, is)
	return nil
}

// leavePrefix owes the deletion of what stood under a directory's prefix until a directory above it moved, or its own name changed.
func leavePrefix(in *record.Inode, key string) {
	if len(in.GetLinks()) == 1 {
		oweFor(in, in.GetDir().GetPrefix(), key, in.GetLinks()[0])
	}
}

// oweFor notes that a prefix has to be cleaned that is not the one to keep, once.
func oweFor(in *record.Inode, prefix, keep string, l *record.Link) {
	if prefix == "" || prefix == keep || slices.ContainsFunc(in.GetTrash(), func(b *record.Base) bool {
		return b.GetKey() == prefix && b.GetDir() == l.GetDir() && b.GetName() == l.GetName()
	}) {
		return
	}
	in.Trash = append(in.Trash, &record.Base{Key: prefix, Dir: l.GetDir(), Name: l.GetName()})
}

// dropLinks makes a file give up the objects of all its names, which it does not read any more: they are deleted, and written again later.
func dropLinks(in *record.Inode) error {
	if in.GetIntent() != nil || in.GetDir() != nil || in.GetMode()&objcache.ModeMask == objcache.ModeRegular && in.GetBase().GetLength() > 0 {
		return objcache.Errorf(objcache.Conflict, "inode %d needs its objects", in.GetIno())
	}
	for _, l := range in.GetLinks() {
		if l.GetKey() != "" {
			in.Trash = append(in.Trash, &record.Base{Key: l.GetKey(), Etag: l.GetEtag(), Dir: l.GetDir(), Name: l.GetName()})
			l.Key, l.Etag, l.Version = "", "", 0
			in.Dirty = true
		}
	}
	return nil
}
