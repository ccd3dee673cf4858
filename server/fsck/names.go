package fsck

import (
	"maps"
	"path"
	"slices"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/meta"
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

// directories are the inodes that are one, or in which names stand.
func (s *state) directories() []objcache.Ino {
	all := map[objcache.Ino]bool{}
	for ino, in := range s.inodes {
		if in.isDir() {
			all[ino] = true
		}
	}
	for dir := range s.entries {
		all[dir] = true
	}
	for dir := range s.cookies {
		all[dir] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// names looks from the names to the inodes.
func (s *state) names() {
	for _, dir := range s.directories() {
		d := s.inodes[dir]
		live := 0
		for _, name := range slices.Sorted(maps.Keys(s.entries[dir])) {
			e := s.entries[dir][name]
			if e.GetIno() == 0 {
				if s.c.Quiet && len(e.GetDebts()) > 0 {
					s.addName(tombstoneLeft, Warning, e.group, dir, name, "%q is owed for still: %v", name, e.GetDebts())
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
		s.addName(entryDangling, Error, e.group, dir, name, "%q is inode %d, which has no row", name, ino).of(ino)
	case in.GetDead() || in.GetOrphan():
		s.addName(entryOfDead, Error, e.group, dir, name, "%q is inode %d, which is gone", name, ino).of(ino)
	case !slices.ContainsFunc(in.GetLinks(), func(l *record.Link) bool { return l.GetDir() == uint64(dir) && l.GetName() == name }):
		s.addName(entryUnlinked, Error, e.group, dir, name, "inode %d does not know its name %q in directory %d", ino, name, dir).of(ino)
	case in.GetMode()&objcache.ModeMask != e.GetMode():
		s.addName(entryType, Error, e.group, dir, name, "%q has type %o, inode %d has %o", name, e.GetMode(), ino, in.GetMode()).of(ino)
	}
}

func (s *state) cookiesOf(dir objcache.Ino) {
	found := map[string]bool{}
	g := s.c.View.OwnerOfInode(dir)
	for cookie, name := range s.cookies[dir] {
		e := s.entries[dir][name]
		if e == nil || e.GetCookie() != cookie || e.GetIno() == 0 {
			s.addName(cookieWrong, Error, g, dir, name, "position %d is %q, which is not there", cookie, name).by(meta.CookieKey(dir, cookie))
			continue
		}
		found[name] = true
	}
	for name, e := range s.entries[dir] {
		if e.GetIno() != 0 && !found[name] {
			s.addName(cookieWrong, Error, g, dir, name, "%q has no position", name).by(meta.CookieKey(dir, e.GetCookie()))
		}
	}
}

// links looks from the inodes to the names.
func (s *state) links() {
	subdirs, children := map[objcache.Ino]uint32{}, map[objcache.Ino][][]byte{}
	for ino, in := range s.inodes {
		if in.isDir() && !in.GetDead() && len(in.GetLinks()) == 1 {
			parent := objcache.Ino(in.GetLinks()[0].GetDir())
			subdirs[parent]++
			children[parent] = append(children[parent], meta.InodeKey(ino))
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
				s.addName(linkDangling, Error, in.group, dir, l.GetName(), "inode %d is not found as %q in directory %d", ino, l.GetName(), dir).of(ino)
			}
		}
		want := uint32(len(in.GetLinks()))
		if in.isDir() {
			want = 2 + subdirs[ino]
		}
		switch {
		case len(in.GetLinks()) == 0:
			s.add(inodeNameless, Error, in.group, ino, "inode %d has no name", ino)
		case in.GetNlink() != want && (!in.isDir() || s.all()):
			s.add(linkCount, Error, in.group, ino, "inode %d says %d links and has %d", ino, in.GetNlink(), want).by(children[ino]...)
		}
	}
}

// all reports whether the rows of every group were read.
func (s *state) all() bool {
	for _, m := range s.c.View.Members {
		if !slices.ContainsFunc(s.groups, func(g *rows) bool { return g.id == m.Group }) {
			return false
		}
	}
	return true
}

// trees wants every directory to stand below a bucket's.
func (s *state) trees() {
	for _, ino := range slices.Sorted(maps.Keys(s.inodes)) {
		seen := map[objcache.Ino]bool{}
		var rows [][]byte
		for at := ino; at != objcache.RootIno; {
			in := s.inodes[at]
			if in == nil || len(in.GetLinks()) == 0 {
				break // said elsewhere
			}
			if seen[at] {
				s.add(dirCircle, Error, in.group, ino, "directory %d stands below itself", at).by(rows...)
				break
			}
			seen[at] = true
			rows = append(rows, meta.InodeKey(at))
			at = objcache.Ino(in.GetLinks()[0].GetDir())
		}
	}
}

// of says which inode a finding about a name is about.
func (f *Finding) of(ino objcache.Ino) *Finding {
	f.Ino = ino
	return f.by(meta.InodeKey(ino))
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
