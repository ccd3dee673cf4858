package objcache

import (
	"io"
	"time"
)

// Credentials say on whose behalf a name is made.
type Credentials struct {
	UID, GID uint32
}

// NewNode describes an inode to make.
type NewNode struct {
	Mode   uint32 // type and permission bits, umask applied
	Rdev   uint32
	Target string // of a symlink
	Open   bool   // the maker has the file open at once, as by Open
	Credentials
}

// Flush is one commit of a file's new bytes.
type Flush struct {
	Ino Ino
	// Dirty was never given to Stage (or changed since); Staged was. A flush stages Dirty itself, and Staged again if an owner lost it.
	Dirty, Staged []Range
	Src           io.ReaderAt // the bytes of both, by offset in the file
	// Size is how long the file is at least afterwards, in bytes; a flush never makes a file shorter (Setattr does).
	Size  int64
	Mtime time.Time
	// Ctime is when the last of it was written, so that a close changes no time that fstat(2) has shown; zero means now.
	Ctime time.Time
	// Session is that under which the bytes were written (Backend.Session): Fenced if it is not the present one. 0: any.
	Session uint64
	// IfVersion refuses the flush (Precondition) unless the file has that version; 0: whatever it has.
	IfVersion uint64
}
