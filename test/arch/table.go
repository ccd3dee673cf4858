// Package arch holds the table of who may import whom. It promises that a package or an import that the
// table does not allow fails the build. It does not know what the packages do.
package arch

// Module is the path that every room's name is relative to. The root package's room is ".".
const Module = "github.com/objcache/objcache"

// vocabulary is the room that every other may import and that imports none.
const vocabulary = "."

// Room is one row of the table: a package, the floor it stands on and what it may import beyond that.
//
// A room in the tower (Floor > 0) imports any room of the tower on a lower floor. Same-floor imports only as
// listed in May. A room beside the tower (Floor 0) imports what May lists and nothing else of ours; only the
// top floor imports it. The tests of a room may also import rooms on its own floor, and support rooms.
type Room struct {
	Path  string // relative to Module; "x/..." stands for x and everything below it
	Floor int
	May   []string
	// Support rooms exist for tests and developers: they import whatever they like, and only tests and
	// other support rooms import them.
	Support bool
}

// Top is the floor that joins the tower with what stands beside it.
const Top = 8

// Table is the house, from the ground up.
var Table = []Room{
	{Path: vocabulary, Floor: 1},
	{Path: "filelock", Floor: 1},
	{Path: "api/v1alpha1", Floor: 1},
	{Path: "api/rpc", Floor: 1},
	{Path: "failpoint", Floor: 1}, // empty unless built with its tag

	{Path: "server/record", Floor: 2},
	{Path: "server/ring", Floor: 2},
	{Path: "server/replica", Floor: 2},
	{Path: "server/external", Floor: 2},
	{Path: "server/external/s3", Floor: 2, May: []string{"server/external"}},
	{Path: "server/external/memstore", Floor: 2, May: []string{"server/external"}},

	{Path: "server/meta", Floor: 3},
	{Path: "server/chunk", Floor: 3},
	{Path: "server/txn", Floor: 3},
	{Path: "server/client", Floor: 3},
	{Path: "server/mirror", Floor: 3, May: []string{"server/meta"}},

	{Path: "server/group", Floor: 4},

	{Path: "server/namespace", Floor: 5}, // turns namespace operations into the steps of transactions
	{Path: "server/transfer", Floor: 5},
	{Path: "server/migrate", Floor: 5},
	{Path: "server/fsck", Floor: 5},
	{Path: "server/restore", Floor: 5},

	{Path: "server/rpc", Floor: 6},
	{Path: "server/fsck/online", Floor: 6},
	{Path: "server/fsck/offline", Floor: 6},

	{Path: "server", Floor: 7},

	{Path: "cmd/objcache", Floor: Top},
	{Path: "cmd/objcache-csi", Floor: Top},
	{Path: "cmd/objcache-operator", Floor: Top},

	{Path: "fuse/cache", May: []string{"failpoint"}},
	{Path: "fuse", May: []string{"failpoint", "fuse/cache", "filelock"}},
	{Path: "fuse/mounter", May: []string{"fuse", "fuse/cache"}},
	{Path: "csi", May: []string{"api/rpc"}},
	{Path: "controllers", May: []string{"api/v1alpha1"}},
	{Path: "dev", May: []string{"api/rpc"}},

	{Path: "test/programs", Support: true},
	{Path: "server/servertest", Support: true},
	{Path: "server/servertest/bubble", Support: true},
	{Path: "server/external/externaltest", Support: true},
	{Path: "fuse/fusetest", Support: true},
	{Path: "test/...", Support: true},
	{Path: "hack/...", Support: true},
}

// Library is an import from outside the module that only some rooms may have, tests included.
type Library struct {
	Path string // the package and everything below it
	Only []string
}

// Libraries keeps each big dependency behind one door. Support rooms are not bound by it.
var Libraries = []Library{
	{Path: "github.com/hashicorp/raft", Only: []string{"server/replica"}},
	{Path: "github.com/hashicorp/raft-wal", Only: []string{"server/replica"}},
	{Path: "github.com/aws/aws-sdk-go-v2", Only: []string{"server/external/s3"}},
	{Path: "github.com/aws/smithy-go", Only: []string{"server/external/s3"}},
	{Path: "github.com/hanwen/go-fuse/v2", Only: []string{"fuse", "fuse/mounter"}},
	{Path: "k8s.io", Only: []string{"api/v1alpha1", "controllers", "csi", "cmd/objcache-csi", "cmd/objcache-operator"}},
	{Path: "sigs.k8s.io/controller-runtime", Only: []string{"api/v1alpha1", "controllers", "cmd/objcache-operator"}},
}

// pure are the rooms whose state must follow from the log alone, and unpure what could make it differ between
// two replicas. Their tests are not bound by it.
var (
	pure   = []string{"server/record", "server/ring", "server/meta", "server/txn"}
	unpure = []string{"net", "math/rand", "math/rand/v2", "crypto/rand", "google.golang.org/grpc"}
)
