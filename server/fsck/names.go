package fsck

import (
	"maps"
	"path"
	"slices"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/record"
)

// Codes of names and inodes that do not agree.
const (
	entryDangling Code = "entry-without-inode" // a name of an inode that has no row
	entryOfDead   Code = "entry-of-dead-inode" // a name of an inode that is gone
	entryNoDir    Code = "entry-without-dir"   // a name in a directory that has no row
	entryUnlinked Code = "entry-not-a-link"    // a name that its inode does not know
	entryType     Code = "entry-type"          // a name says another type than its inode
	linkDangling  Code = "link-without-entry"  // an inode believes to have a name that is not there
	linkCount     Code = "link-count"          // st_nlink is not the number of names
	childCount    Code = "child-count"         // a directory counts other than its names
	cookieWrong   Code = "cookie"              // readdir does not find each name once
	inodeNameless Code = "inode-without-name"  // an inode has no name, and does not say that it is gone
	dirCircle     Code = "dir-circle"          // a directory stands below itself
	tombstoneLeft Code = "tombstone-left"      // a removed name is still remembered for a debt
)

func (in *inode) isDir() bool { return in.GetMode()&objcache.ModeMask == objcache.ModeDir }

// names looks from the names to the inodes.
func (s *state) names() {
	for _, dir := range slices.Sorted(maps.Keys(s.entries)) {
		d := s.inodes[dir]
		live := 0
		for _, name := range slices.Sorted(maps.Keys(s.entries[dir])) {
			e := s.entries[dir][name]
			if e.GetIno() == 0 {
				if s.c.Quiet && len(e.GetDebts()) > 0 {
					s.add(tombstoneLeft, Warning, e.group, dir, "%q is owed for still: %v", name, e.GetDebts())
				}
				continue
			}
			live++
			s.name(dir, name, e)
		}
		switch {
		case live > 0 && (d == nil || d.GetDead()):
			s.add(entryNoDir, Error, s.c.View.OwnerOfInode(dir), dir, "%d names stand in directory %d, which is not there", live, dir)
		case d != nil && !d.GetDead() && d.GetDir().GetChildren() != uint64(live):
			s.add(childCount, Error, d.group, dir, "directory %d counts %d names and has %d", dir, d.GetDir().GetChildren(), live)
		}
		s.cookiesOf(dir)
	}
}

func (s *state) name(dir objcache.Ino, name string, e *entry) {
	ino := objcache.Ino(e.GetIno())
	in := s.inodes[ino]
	switch {
	case in == nil:
		s.add(entryDangling, Error, e.group, dir, "%q is inode %d, which has no row", name, ino)
	case in.GetDead() || in.GetOrphan():
		s.add(entryOfDead, Error, e.group, ino, "%q in directory %d is an inode that is gone", name, dir)
	case !slices.ContainsFunc(in.GetLinks(), func(l *record.Link) bool { return l.GetDir() == uint64(dir) && l.GetName() == name }):
		s.add(entryUnlinked, Error, e.group, ino, "inode %d does not know its name %q in directory %d", ino, name, dir)
	case in.GetMode()&objcache.ModeMask != e.GetMode():
		s.add(entryType, Error, e.group, ino, "%q in directory %d has type %o, inode %d has %o", name, dir, e.GetMode(), ino, in.GetMode())
	}
}

func (s *state) cookiesOf(dir objcache.Ino) {
	found := map[string]bool{}
	g := s.c.View.OwnerOfInode(dir)
	for cookie, name := range s.cookies[dir] {
		e := s.entries[dir][name]
		if e == nil || e.GetCookie() != cookie || e.GetIno() == 0 {
			s.add(cookieWrong, Error, g, dir, "position %d is %q, which is not there", cookie, name)
			continue
		}
		found[name] = true
	}
	for name, e := range s.entries[dir] {
		if e.GetIno() != 0 && !found[name] {
			s.add(cookieWrong, Error, g, dir, "%q has no position", name)
		}
	}
}

// links looks from the inodes to the names.
func (s *state) links() {
	subdirs := map[objcache.Ino]uint32{}
	for _, in := range s.inodes {
		if in.isDir() && !in.GetDead() && len(in.GetLinks()) == 1 {
			subdirs[objcache.Ino(in.GetLinks()[0].GetDir())]++
		}
	}
	for _, ino := range slices.Sorted(maps.Keys(s.inodes)) {
		in := s.inodes[ino]
		if in.GetDead() || in.GetOrphan() {
			continue
		}
		for _, l := range in.GetLinks() {
			dir := objcache.Ino(l.GetDir())
			if e := s.entries[dir][l.GetName()]; dir != objcache.RootIno && (e == nil || objcache.Ino(e.GetIno()) != ino) {
				s.add(linkDangling, Error, in.group, ino, "inode %d is not found as %q in directory %d", ino, l.GetName(), dir)
			}
		}
		want := uint32(len(in.GetLinks()))
		if in.isDir() {
			want = 2 + subdirs[ino]
		}
		switch {
		case len(in.GetLinks()) == 0:
			s.add(inodeNameless, Error, in.group, ino, "inode %d has no name", ino)
		case in.GetNlink() != want:
			s.add(linkCount, Error, in.group, ino, "inode %d says %d links and has %d", ino, in.GetNlink(), want)
		}
	}
}

// trees wants every directory to stand below a bucket's.
func (s *state) trees() {
	for _, ino := range slices.Sorted(maps.Keys(s.inodes)) {
		seen := map[objcache.Ino]bool{}
		for at := ino; at != objcache.RootIno; {
			in := s.inodes[at]
			if in == nil || len(in.GetLinks()) == 0 {
				break // said elsewhere
			}
			if seen[at] {
				s.add(dirCircle, Error, in.group, ino, "directory %d stands below itself", at)
				break
			}
			seen[at] = true
			at = objcache.Ino(in.GetLinks()[0].GetDir())
		}
	}
}

// path is a name of an inode, from the root; as far as it is known.
func (s *state) path(ino objcache.Ino) string {
	p := ""
	for range 1000 { // circles end somewhere
		in := s.inodes[ino]
		if in == nil || len(in.GetLinks()) == 0 {
			return path.Join("?", p)
		}
		p = path.Join(in.GetLinks()[0].GetName(), p)
		if ino = objcache.Ino(in.GetLinks()[0].GetDir()); ino == objcache.RootIno {
			return "/" + p
		}
	}
	return path.Join("?", p)
}
