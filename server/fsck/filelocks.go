package fsck

import (
	"maps"
	"slices"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/meta"
)

// Codes of file locks.
const (
	lockWithoutSession Code = "lock-without-session" // a client holds a lock whose session has no row: nobody will take it away
	lockWithoutInode   Code = "lock-without-inode"   // a lock on a file that is gone
)

// fileLocks wants every file lock to be held by a session that lives or is being ended, on a file that exists.
func (s *state) fileLocks() {
	sessions := map[objcache.ClientID]bool{}
	for _, g := range s.groups {
		for k := range g.by {
			if c, ok := meta.ParseSessionKey([]byte(k)); ok {
				sessions[c] = true
			}
		}
	}
	for _, g := range s.groups {
		for _, k := range slices.Sorted(maps.Keys(g.by)) {
			if ino, ok := meta.ParseFileLocksKey([]byte(k)); ok {
				s.fileLocksOf(g, ino, g.by[k], sessions)
			}
		}
	}
}

func (s *state) fileLocksOf(g *rows, ino objcache.Ino, row []byte, sessions map[objcache.ClientID]bool) {
	all, err := meta.DecodeFileLocks(row)
	if err != nil {
		s.add(corruptRow, Error, g.id, ino, "locks of inode %d: %v", ino, err)
		return
	}
	if own := s.c.View.OwnerOfInode(ino); own != g.id {
		s.add(rowMisplaced, Error, g.id, ino, "the locks of inode %d belong to group %d", ino, own)
	}
	if s.inodes[ino] == nil && s.c.Quiet {
		s.add(lockWithoutInode, Warning, g.id, ino, "locks of inode %d, which is gone", ino)
	}
	for _, l := range slices.Concat(all.Posix, all.Flock) {
		if !sessions[objcache.ClientID(l.Owner.Session)] {
			s.add(lockWithoutSession, Error, g.id, ino, "bytes %d to %d are locked by session %x, which is no more", l.Start, l.End, l.Owner.Session)
		}
	}
}
