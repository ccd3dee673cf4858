package meta

import (
	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/ring"
)

// Defaults are the attributes of what nobody has given any.
type Defaults struct {
	UID, GID          uint32
	FileMode, DirMode uint32 // permission bits
}

// HiddenDir is the name at the top of each bucket that is ours and never shown.
const HiddenDir = ".objcache"

// BucketIno is the number of a bucket's directory: it follows from the directory's name, so that all servers agree.
func BucketIno(dirName string) objcache.Ino {
	return objcache.Ino(2 + ring.HashName(dirName)%uint64(objcache.FirstFreeIno-2))
}
