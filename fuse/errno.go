package fuse

import (
	"errors"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/objcache/objcache"
)

// errnos is the translation of kinds of error for programs on the mount. Only NotExist, that is a 404 from external storage or a name that is not there, is ENOENT.
var errnos = map[objcache.Kind]syscall.Errno{
	objcache.Unknown:      syscall.EIO,
	objcache.NotExist:     syscall.ENOENT,
	objcache.Exist:        syscall.EEXIST,
	objcache.NotDir:       syscall.ENOTDIR,
	objcache.IsDir:        syscall.EISDIR,
	objcache.NotEmpty:     syscall.ENOTEMPTY,
	objcache.Stale:        syscall.ESTALE,
	objcache.NotOwner:     syscall.EIO, // the backend retries these; here its time was up
	objcache.Unavailable:  syscall.EIO,
	objcache.Conflict:     syscall.EIO,
	objcache.Superseded:   syscall.EIO,
	objcache.StageLost:    syscall.EIO,
	objcache.Corrupt:      syscall.EIO,
	objcache.NoSpace:      syscall.ENOSPC,
	objcache.Interrupted:  syscall.EINTR,
	objcache.Invalid:      syscall.EINVAL,
	objcache.Permission:   syscall.EACCES,
	objcache.NotPermitted: syscall.EPERM,
	objcache.CrossDevice:  syscall.EXDEV,
	objcache.NameTooLong:  syscall.ENAMETOOLONG,
	objcache.TooManyLinks: syscall.EMLINK,
	objcache.NoAttr:       syscall.ENODATA,
	objcache.TooLarge:     syscall.EFBIG,
	objcache.RangeError:   syscall.ERANGE,
	objcache.NotSupported: syscall.EOPNOTSUPP,
	objcache.ReadOnly:     syscall.EROFS,
	objcache.IO:           syscall.EIO,
	objcache.Precondition: syscall.EIO,
	objcache.NoUpload:     syscall.EIO,
	objcache.Busy:         syscall.EAGAIN,
	objcache.Fenced:       syscall.EIO,
}

// errnoOf translates an error; nil is 0 and a plain errno stays what it is.
func errnoOf(err error) syscall.Errno {
	if err == nil {
		return 0
	}
	var e syscall.Errno
	if k := objcache.KindOf(err); k != objcache.Unknown {
		return errnos[k]
	}
	if errors.As(err, &e) {
		return e
	}
	return syscall.EIO
}

func status(err error) fuse.Status { return fuse.Status(errnoOf(err)) }
