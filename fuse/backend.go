package fuse

import (
	"context"
	"io"
	"time"

	"github.com/objcache/objcache"
)

// Backend is what a mount asks of the cluster. server/client implements it. All methods may be called at the same time, may
// wait for servers (they retry transient errors themselves until ctx ends) and return errors with an objcache.Kind; a
// cancelled ctx is Interrupted. Each mutating method runs exactly once in the cluster however often it is sent.
type Backend interface {
	Names
	Attributes
	Bytes
	Locks
	Sessions
	// Statfs is answered from memory.
	Statfs(ctx context.Context) (objcache.Statfs, error)
}

// The vocabulary of the seam is the root package's, so that the cluster's side need not import this one.
type (
	// Credentials are the vocabulary's.
	Credentials = objcache.Credentials
	// NewNode is the vocabulary's.
	NewNode = objcache.NewNode
	// Flush is the vocabulary's.
	Flush = objcache.Flush
)

// Names are the operations on directories.
type Names interface {
	// Lookup finds one name. NotExist if there is none.
	Lookup(ctx context.Context, dir objcache.Ino, name string) (objcache.Attr, error)
	// Readdir returns up to limit names behind cookie (0: from the beginning), without "." and "..", with attributes. Fewer than
	// limit, also zero, does not mean the end: eof does.
	Readdir(ctx context.Context, dir objcache.Ino, cookie uint64, limit int) (entries []objcache.DirEntry, eof bool, err error)
	// Create makes a file, directory, symlink, fifo, socket or device. Exist if the name is taken.
	// With NewNode.Open a file is open as by Open, and needs one Release.
	Create(ctx context.Context, dir objcache.Ino, name string, n NewNode) (objcache.Attr, error)
	Unlink(ctx context.Context, dir objcache.Ino, name string) error
	Rmdir(ctx context.Context, dir objcache.Ino, name string) error
	// Rename flags are those of renameat2(2): RENAME_NOREPLACE (1) and RENAME_EXCHANGE (2).
	Rename(ctx context.Context, dir objcache.Ino, name string, newDir objcache.Ino, newName string, flags uint32) error
	Link(ctx context.Context, ino objcache.Ino, newDir objcache.Ino, newName string) (objcache.Attr, error)
}

// Attributes are the operations on one inode's metadata. (A symlink's target comes with its Attr.)
type Attributes interface {
	Getattr(ctx context.Context, ino objcache.Ino) (objcache.Attr, error)
	// Setattr with a Size truncates or extends what is committed: the caller has flushed its own dirty ranges before.
	Setattr(ctx context.Context, ino objcache.Ino, set objcache.SetAttr) (objcache.Attr, error)
	Getxattr(ctx context.Context, ino objcache.Ino, name string) ([]byte, error)
	Listxattr(ctx context.Context, ino objcache.Ino) ([]string, error)
	// Setxattr flags are XATTR_CREATE (1) and XATTR_REPLACE (2).
	Setxattr(ctx context.Context, ino objcache.Ino, name string, value []byte, flags uint32) error
	Removexattr(ctx context.Context, ino objcache.Ino, name string) error
}

// Locks are fcntl(2)'s and flock(2)'s locks, of all mounts. They belong to the session, and last until they are given back or it ends.
type Locks interface {
	// TryLock takes a lock, merged with what its owner has of the range, and returns the attributes of the file as of then: everything that was committed
	// before any earlier holder's Unlock is in them. Busy at once if somebody else's lock is in the way. With a ticket, a number of the caller's, the lock is
	// waited for: the caller gets a place in the queue, and others with a ticket that come later are Busy too.
	TryLock(ctx context.Context, l objcache.Lock, ticket uint64) (objcache.Attr, error)
	// AwaitLock returns when TryLock with that ticket may succeed, or after some seconds.
	AwaitLock(ctx context.Context, l objcache.Lock, ticket uint64) error
	// LeaveLock gives the place in the queue up.
	LeaveLock(ctx context.Context, l objcache.Lock, ticket uint64) error
	// Unlock gives a range back, or what its owner has of it.
	Unlock(ctx context.Context, l objcache.Lock) error
	// TestLock returns a lock that is in the way of l; false: none is.
	TestLock(ctx context.Context, l objcache.Lock) (objcache.Lock, bool, error)
}

// Sessions say which life of this mount at the cluster it is. A session whose lease ends without a word is over: its locks, opens and staged bytes are gone,
// and nothing that was asked for in it happens any more.
type Sessions interface {
	// Session numbers the present session: 1, 2, ...
	Session() uint64
	// OnSessionLost has f called when a session is over, before Session tells the next number. f does not wait for the cluster.
	OnSessionLost(f func())
}

// Bytes are the operations on a regular file's content.
//
// Flush, Append and a Setattr with a Size make a new version. If it is the mount's version plus one, nobody else changed the file meanwhile and the mount keeps
// what it has cached; any other step makes it fetch again. So a backend that takes larger steps is right, and slower.
type Bytes interface {
	// Open registers that this mount has the file open (its bytes stay readable after unlink until Release) and returns its attributes as of
	// now: whatever another mount has closed before is in them. Each Open needs one Release.
	Open(ctx context.Context, ino objcache.Ino) (objcache.Attr, error)
	// Release undoes one Open; it does not wait for the network.
	Release(ino objcache.Ino)
	// ReadAt fills p with committed bytes of the given version from off. Short reads happen only at the end of that version (n < len(p), err nil).
	// Superseded: a newer version exists; get the attributes and start again.
	ReadAt(ctx context.Context, ino objcache.Ino, version uint64, p []byte, off int64) (n int, err error)
	// Stage sends bytes to the owners of their chunks ahead of a Flush. No reader sees them until Flush. src is read with offsets of the file;
	// the bytes in r must not change until Stage returns.
	Stage(ctx context.Context, ino objcache.Ino, r objcache.Range, src io.ReaderAt) error
	// Flush commits bytes, size and time in one transaction and returns the new attributes: every open on any mount sees them from then on.
	// Fenced if Flush.Session is over, Precondition if the file is not at Flush.IfVersion.
	Flush(ctx context.Context, f Flush) (objcache.Attr, error)
	// Append adds p at the end of the file, wherever that is now, in one transaction; off is where it went.
	Append(ctx context.Context, ino objcache.Ino, p []byte, mtime time.Time) (off int64, a objcache.Attr, err error)
	// Sync is called by fsync(2) after Flush, and by close(2) too, when the cluster's upload mode wants the object in S3 then; otherwise it returns at once.
	Sync(ctx context.Context, ino objcache.Ino, closing bool) error
}
