package fsck

import (
	"maps"
	"slices"
	"strings"

	"github.com/objcache/objcache"
)

// Codes of the difference between what is clean here and what external storage holds.
const (
	objectMissing Code = "object-missing"  // a clean file's object is not there
	objectOther   Code = "object-other"    // a clean file's object is another than was written
	objectStray   Code = "object-nameless" // an object that no name stands for
)

// objects wants the object of every name of a clean file to be the one that was written, and no others where nothing is owed.
func (s *state) objects() {
	if s.c.Objects == nil {
		return
	}
	known := map[string]map[string]bool{}
	for b := range s.c.Objects {
		known[b] = map[string]bool{}
	}
	for _, ino := range slices.Sorted(maps.Keys(s.inodes)) {
		in := s.inodes[ino]
		if known[in.GetBucket()] == nil {
			continue
		}
		if in.isDir() {
			known[in.GetBucket()][in.GetDir().GetPrefix()] = true
			continue
		}
		for _, l := range in.GetLinks() {
			known[in.GetBucket()][l.GetKey()] = true
		}
		if !in.GetDead() && !in.GetOrphan() && !in.GetDirty() && in.GetIntent() == nil {
			s.objectsOf(ino, in)
		}
	}
	if s.c.Quiet {
		s.strays(known)
	}
}

func (s *state) objectsOf(ino objcache.Ino, in *inode) {
	for _, l := range in.GetLinks() {
		switch o, ok := s.c.Objects[in.GetBucket()][l.GetKey()]; {
		case !ok:
			s.add(objectMissing, Error, in.group, ino, "the object %q of %q is not there", l.GetKey(), l.GetName())
		case o.ETag != l.GetEtag() || o.Size != in.GetSize() && in.GetMode()&objcache.ModeMask == objcache.ModeRegular:
			s.add(objectOther, Error, in.group, ino, "the object %q has ETag %s and %d bytes, known are %s and %d", l.GetKey(), o.ETag, o.Size, l.GetEtag(),
				in.GetSize())
		}
	}
}

func (s *state) strays(known map[string]map[string]bool) {
	for _, b := range slices.Sorted(maps.Keys(s.c.Objects)) {
		for _, k := range slices.Sorted(maps.Keys(s.c.Objects[b])) {
			if !known[b][k] && (s.c.Hidden == "" || !strings.HasPrefix(k, s.c.Hidden)) {
				s.add(objectStray, Warning, 0, 0, "no name stands for the object %q of bucket %s", k, b)
			}
		}
	}
}
