package fsck

import (
	"fmt"
	"maps"
	"slices"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/filelock"
	"github.com/objcache/objcache/server/meta"
)

// Codes of what clients left behind.
const (
	lockOrphaned   Code = "lock-without-session"   // a file is locked by a session that is over
	lockDangling   Code = "lock-without-inode"     // a lock on a file that is not there
	stagedOrphaned Code = "staged-without-session" // bytes of a session that is over, which no flush will commit
)

// clients wants everything that a client holds to be of a session that is there, if only to be ended.
func (s *state) clients() {
	for _, ino := range slices.Sorted(maps.Keys(s.locks)) {
		l := s.locks[ino]
		if in := s.inodes[ino]; in == nil || in.GetDead() {
			s.add(lockDangling, Warning, l.group, ino, "inode %d, which is gone, is locked", ino).by(meta.FileLocksKey(ino))
			continue
		}
		for _, c := range holders(l.FileLocks) {
			if s.sessions[c] == nil {
				f := s.add(lockOrphaned, Error, l.group, ino, "inode %d is locked by session %x, which is over", ino, uint64(c))
				f.by(meta.FileLocksKey(ino), meta.SessionKey(c)).Client = uint64(c)
			}
		}
	}
	for _, g := range s.groups {
		for _, st := range g.disk.Staged {
			f := s.add(stagedOrphaned, Warning, g.id, st.Chunk.Ino, "session %x, which is over, has %d bytes of chunk %v outstanding",
				uint64(st.Client), st.Bytes, st.Chunk)
			f.inChunk(st.Chunk).by(meta.SessionKey(st.Client)).Client, f.Bytes = uint64(st.Client), st.Bytes
		}
	}
}

// holders are the sessions that have a lock on a file.
func holders(l meta.FileLocks) []objcache.ClientID {
	all := map[objcache.ClientID]bool{}
	for _, t := range []filelock.Table{l.Posix, l.Flock} {
		for _, h := range t {
			all[objcache.ClientID(h.Owner.Session)] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// Codes of files on a disk.
const (
	fileForeign  Code = "file-foreign"  // a file that no program of ours made takes room
	fileNameless Code = "file-nameless" // bytes that no row names; the next start gives them back
	diskDamaged  Code = "disk-damaged"  // log or rows are not what was written
)

// disks tells what somebody found who looked at the files.
func (s *state) disks() {
	for _, g := range s.groups {
		for _, d := range g.disk.Damages {
			s.add(diskDamaged, Error, g.id, 0, "%s", d)
		}
		for _, st := range g.disk.Strays {
			code, sev, what := fileNameless, Note, "no row names %s"
			if st.Foreign {
				code, sev, what = fileForeign, Warning, "%s is not a file of this program"
			}
			s.add(code, sev, g.id, 0, what+", %d bytes", st.File, st.Bytes).Bytes = st.Bytes
		}
	}
}

// OfDisk are findings about a group whose rows cannot be read.
func OfDisk(g objcache.GroupID, d Disk) []Finding {
	s := &state{groups: []*rows{{id: g, disk: d}}}
	s.disks()
	return s.found
}

// Where is the path of a finding, else what else names the place.
func (f Finding) Where() string {
	switch {
	case f.Path != "":
		return f.Path
	case f.Ino != 0:
		return fmt.Sprintf("inode %d", f.Ino)
	}
	return fmt.Sprintf("group %d", f.Group)
}
