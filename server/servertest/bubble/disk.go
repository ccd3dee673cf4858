package bubble

import (
	"errors"
	"math/rand/v2"
	"path"
	"strings"
	"sync"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// image is what a disk holds: small files, and chunks.
type image struct {
	mem    *vfs.MemFS
	chunks *sparse
}

// disk is a server's disk in memory. A crash leaves what was synced, and some of what was not.
type disk struct {
	image
	faults *Faults
	mu     struct {
		sync.Mutex
		rng     *rand.Rand
		percent int             // of unsynced blocks that survive the armed crash
		left    int             // writing operations until the armed crash
		crashed func(at string) // called when it strikes, in the middle of the operation's caller
		clone   *image
		full    func(name string) bool // files that cannot grow now; nil: all can
	}
}

// stateDir is where a server's state lies on its disk.
const stateDir = "state"

func newDisk(i image, seed uint64, f *Faults) *disk {
	d := &disk{image: i, faults: f}
	d.chunks.before = d.before
	d.mu.rng = rand.New(rand.NewPCG(seed, 0x6469736b))
	return d
}

// emptyDisk is a disk with a durable, empty state directory: administrators make it.
func emptyDisk(seed uint64, f *Faults) (*disk, error) {
	mem := vfs.NewCrashableMem()
	if err := mem.MkdirAll(stateDir, 0o700); err != nil {
		return nil, err
	}
	root, err := mem.OpenDir("/")
	if err != nil {
		return nil, err
	}
	return newDisk(image{mem, newSparse()}, seed, f), errors.Join(root.Sync(), root.Close())
}

func (d *disk) fs() vfs.FS { return errorfs.Wrap(d.mem, errorfs.InjectorFunc(d.before)) }

// before sees every operation.
func (d *disk) before(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() != errorfs.OpIsWrite || op.Kind == errorfs.OpFileClose {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.left > 0 {
		if d.mu.left--; d.mu.left == 0 {
			d.mu.crashed(kindOf(op)) // first: nobody may hear of what the image does not hold
			d.mu.clone = d.cloneLocked(d.mu.percent)
		}
	}
	if d.mu.full != nil && grows(op.Kind) && d.mu.full(op.Path) {
		d.faults.Add("disk: ENOSPC")
		return &errNoSpace{op.Path}
	}
	return nil
}

func grows(k errorfs.OpKind) bool {
	switch k {
	case errorfs.OpCreate, errorfs.OpFileWrite, errorfs.OpFileWriteAt, errorfs.OpFilePreallocate:
		return true
	}
	return false
}

type errNoSpace struct{ name string }

func (e *errNoSpace) Error() string { return e.name + ": no space left on device" }
func (e *errNoSpace) Unwrap() error { return syscall.ENOSPC }

// kindOf names the kind of file and operation at which a crash struck, for the counts.
func kindOf(op errorfs.Op) string {
	dir, file := path.Split(op.Path)
	kind := path.Ext(file)
	if kind == "" {
		kind = strings.TrimRight(file, "0123456789")
	}
	return path.Base(dir) + "/" + kind + " " + opNames[op.Kind]
}

var opNames = map[errorfs.OpKind]string{
	errorfs.OpCreate: "create", errorfs.OpLink: "link", errorfs.OpRemove: "remove", errorfs.OpRemoveAll: "remove", errorfs.OpRename: "rename",
	errorfs.OpReuseForWrite: "reuse", errorfs.OpMkdirAll: "mkdir", errorfs.OpLock: "lock", errorfs.OpFilePreallocate: "allocate",
	errorfs.OpFileWrite: "write", errorfs.OpFileWriteAt: "write", errorfs.OpFileSync: "sync", errorfs.OpFileSyncData: "sync",
	errorfs.OpFileSyncTo: "sync", errorfs.OpFileFlush: "flush",
}

func (d *disk) cloneLocked(percent int) *image {
	i := &image{}
	// The log may be newer than the chunks, never older: bytes are synced before the log names them.
	i.chunks = d.chunks.freeze(percent, d.mu.rng, func() {
		i.mem = d.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: d.mu.rng})
	})
	return i
}

// crash is what a crash now leaves. An armed crash is disarmed; if it has struck, its image is the answer.
func (d *disk) crash(percent int) image {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.left = 0
	if d.mu.clone == nil {
		d.mu.clone = d.cloneLocked(percent)
	}
	return *d.mu.clone
}

// arm makes the disk crash just before its n-th writing operation from now.
func (d *disk) arm(n, percent int, crashed func(at string)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.left, d.mu.percent, d.mu.crashed = n, percent, crashed
}

// disarm calls an armed crash off, and returns its image if it has struck already.
func (d *disk) disarm() *image {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.left = 0
	return d.mu.clone
}

// fill makes writes to some files fail until it is called with nil.
func (d *disk) fill(full func(name string) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.full = full
}

func (d *disk) free(string) (int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.full != nil {
		return 0, nil
	}
	return 1 << 40, nil
}

func (d *disk) isFull() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.full != nil
}
