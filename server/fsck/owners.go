package fsck

import (
	"maps"
	"slices"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/record"
)

// Codes of rows that lie where they should not.
const (
	rowTwice     Code = "row-twice"      // two groups have a row for the same inode
	rowMisplaced Code = "row-misplaced"  // a group has a row that another owns
	groupMissing Code = "group-unknown"  // a group's rows were given that is in no view
	groupAbsent  Code = "group-not-read" // a group of the view was not read
)

func (s *state) addInode(g objcache.GroupID, in *record.Inode) {
	ino := objcache.Ino(in.GetIno())
	if old := s.inodes[ino]; old != nil {
		s.add(rowTwice, Error, g, ino, "inode %d has a row in group %d too", ino, old.group)
		return
	}
	s.inodes[ino] = &inode{in, g}
}

// owners wants every row with the group that owns its key.
func (s *state) owners() {
	read := map[objcache.GroupID]bool{}
	for _, g := range s.c.Groups {
		read[g.ID] = true
		if _, ok := s.c.View.Member(g.ID); !ok {
			s.add(groupMissing, Error, g.ID, 0, "group %d is in no view", g.ID)
		}
	}
	for _, m := range s.c.View.Members {
		if !read[m.Group] {
			s.add(groupAbsent, Error, m.Group, 0, "the rows of group %d are not there to be checked", m.Group)
		}
	}
	for _, ino := range slices.Sorted(maps.Keys(s.inodes)) {
		if own := s.c.View.OwnerOfInode(ino); own != s.inodes[ino].group {
			s.add(rowMisplaced, Error, s.inodes[ino].group, ino, "inode %d belongs to group %d", ino, own)
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(s.entries)) {
		own := s.c.View.OwnerOfInode(dir)
		for _, name := range slices.Sorted(maps.Keys(s.entries[dir])) {
			if e := s.entries[dir][name]; e.group != own {
				s.addName(rowMisplaced, Error, e.group, dir, name, "the entry %q belongs to group %d", name, own)
			}
		}
	}
	for k, c := range s.chunks {
		if own := s.c.View.OwnerOfChunk(k); own != c.group {
			s.add(rowMisplaced, Error, c.group, k.Ino, "chunk %v belongs to group %d", k, own).inChunk(k)
		}
	}
}
