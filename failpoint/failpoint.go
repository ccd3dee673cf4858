// Package failpoint names the steps of servers and mounts at which a crash would hurt most, so that a test can kill a real process at each of them.
// It promises that a program built without the tag failpoints has nothing of it: Hit and Fail are empty and inlined, and nothing can be armed. It does
// not know what the steps do.
//
// A program built with the tag counts who passes by, and does what a point is armed for: at its start by the environment, later by HTTP (Handle).
//
//	OBJCACHE_FAILPOINTS='log.synced=kill@3,s3.put.before=delay(100ms)' objcache server ...
//	curl -d 'log.synced=kill' http://METRICS-ADDRESS/failpoints
package failpoint

// Point is one place in the code. The constants are in points.go.
type Point uint8

// Process says whose point it is, and so when it can be armed.
type Process string

// The kinds of process. A point of a start is passed before anybody can ask the process for anything: only the environment arms it.
const (
	Server      Process = "server"
	ServerStart Process = "server start"
	Mount       Process = "mount"
	MountStart  Process = "mount start"
)

// Info describes a point.
type Info struct {
	Name string // as it is armed; never changes
	In   Process
	Text string // what has just happened or is about to
}

// All lists the points, in the order of points.go.
func All() []Info { return table[:] }

// String is the point's name.
func (p Point) String() string { return table[p].Name }

// EnvArm is the variable that arms points at a process's start, see Arm.
const EnvArm = "OBJCACHE_FAILPOINTS"

// The names of numbers that tests make small (Number), each a variable of the environment.
const (
	LogSegmentBytes   = "OBJCACHE_FAILPOINTS_LOG_SEGMENT_BYTES"   // replica.Config.SegmentSize
	SnapshotEntries   = "OBJCACHE_FAILPOINTS_SNAPSHOT_ENTRIES"    // replica.Config.SnapshotEntries
	ChunkSegmentBytes = "OBJCACHE_FAILPOINTS_CHUNK_SEGMENT_BYTES" // chunk.Options.SegmentSize
	S3ResponseMillis  = "OBJCACHE_FAILPOINTS_S3_RESPONSE_MS"      // s3.Config.ResponseTimeout
)
