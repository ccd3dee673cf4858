package fsck

import (
	"maps"
	"slices"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
)

// Codes of what is owed to external storage.
const (
	owingUnlisted Code = "owing-not-listed" // an inode owes something, and nobody will look at it
	owingStale    Code = "owing-listed"     // the index names an inode that owes nothing
	owingLeft     Code = "owing-left"       // something is owed although all should be done
	cleanUnstored Code = "clean-unstored"   // a file counts as persisted, and a name of it never was
)

// owing compares the inodes that owe external storage something with the index by which they are found.
func (s *state) owing() {
	listed := map[objcache.Ino]int{}
	for _, o := range s.owed {
		in := s.inodes[o.ino]
		if in == nil || in.group != o.group || in.GetDirtySince() != o.since {
			s.add(owingStale, Warning, o.group, o.ino, "inode %d is listed since %d for what it does not owe", o.ino, o.since).by(meta.DirtyKey(o.since, o.ino))
			continue
		}
		listed[o.ino]++
	}
	for _, ino := range slices.Sorted(maps.Keys(s.inodes)) {
		in := s.inodes[ino]
		switch owes := meta.Owes(in.Inode); {
		case owes && listed[ino] != 1:
			s.add(owingUnlisted, Error, in.group, ino, "inode %d owes something and is listed %d times", ino, listed[ino])
		case !owes && listed[ino] > 0:
			s.add(owingStale, Warning, in.group, ino, "inode %d is listed and owes nothing", ino)
		case owes && s.c.Quiet:
			s.add(owingLeft, Error, in.group, ino, "inode %d owes external storage something still", ino)
		}
		if l := s.unstored(in); l != nil {
			s.addName(cleanUnstored, Error, in.group, objcache.Ino(l.GetDir()), l.GetName(), "inode %d is clean, and %q has no object", ino, l.GetName()).of(ino)
		}
	}
}

// unstored is a name of a clean file for which nothing was ever written; nil when there is none.
func (s *state) unstored(in *inode) *record.Link {
	if in.isDir() || in.GetDirty() || in.GetDead() || in.GetOrphan() || in.GetIntent() != nil {
		return nil
	}
	i := slices.IndexFunc(in.GetLinks(), func(l *record.Link) bool { return l.GetKey() == "" })
	if i < 0 {
		return nil
	}
	return in.GetLinks()[i]
}
