// Package fsck checks the rows of all groups of a cluster against each other: that names and inodes agree, that every row lies with its owner, that what
// is under way can be finished and what is over has left nothing behind. It promises to change nothing. It does not know where rows come from, and it does
// not read the bytes of files.
package fsck

import (
	"cmp"
	"slices"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/external"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
	"github.com/objcache/objcache/server/ring"
)

// Group is the rows of one group, which nobody changes meanwhile.
type Group struct {
	ID   objcache.GroupID
	Rows meta.Reader
	// Each replaces Rows: it calls f for every row, as the function Each does.
	Each func(f func(key, value []byte) error) error
	// Disk is what is known of the files below the rows.
	Disk Disk
}

// Disk is what somebody found who looked at the files of a group.
type Disk struct {
	Rotten  map[uint64]string // extents whose bytes are damaged or gone, and how
	Strays  []Stray           // files that no row names
	Damages []string          // what is wrong with log and rows themselves
	Staged  []Staged          // bytes of clients that have no session any more
}

// Stray is a file that takes room for nothing.
type Stray struct {
	File    string
	Bytes   int64
	Foreign bool // it is none of the store's names: no start removes it
}

// Staged is what a client has sent and not committed of a chunk.
type Staged struct {
	Client objcache.ClientID
	Chunk  objcache.ChunkKey
	Bytes  int64
}

// Cluster is what is checked.
type Cluster struct {
	View   *ring.View
	Groups []Group // all of the view's; without one of them its rows are reported as missing
	// Quiet says that nothing is under way and nothing owed: then whatever says so is a finding.
	Quiet bool
	// Objects is what external storage lists, by dirName of the bucket and key; nil: it is not compared.
	Objects map[string]map[string]external.Object
	// Hidden is the prefix of objects that are the system's own.
	Hidden string
}

// Severity says how bad a finding is.
type Severity string

// The severities.
const (
	Note    Severity = "note"    // nothing is wrong: it goes by itself
	Warning Severity = "warning" // something is left behind that costs room or time
	Error   Severity = "error"   // a name, bytes or their safety are at stake
)

// Finding is one thing that is not as it must be.
type Finding struct {
	Code     Code             `json:"code"`
	Severity Severity         `json:"severity"`
	Group    objcache.GroupID `json:"group"` // whose row says so
	Ino      objcache.Ino     `json:"ino,omitempty"`
	Dir      objcache.Ino     `json:"dir,omitempty"`  // of Name
	Name     string           `json:"name,omitempty"` // the name it is about, in Dir
	Chunk    *uint32          `json:"chunk,omitempty"`
	Extent   uint64           `json:"extent,omitempty"`
	Path     string           `json:"path,omitempty"` // of the name or the inode, as far as names lead to it
	Text     string           `json:"text"`
	Repair   string           `json:"repair"`           // what Plan does about it
	Client   uint64           `json:"client,omitempty"` // whose session it is about
	Bytes    int64            `json:"bytes,omitempty"`  // that it takes, or that are lost

	tx       *record.TxID
	rows     [][]byte // keys of the rows that say so, of those too that are not there
	evidence string   // what those rows say
	sure     bool     // they are all of one group, which was read at one moment
	doubtful bool     // a transaction that is not decided changes one of them
}

// Code names a kind of finding. Codes are never given a new meaning.
type Code string

// Report is what a check found, with the rows in which it found it.
type Report struct {
	Findings []Finding // by path
	s        *state
}

// Check returns what is wrong, by path. The error is that of reading rows.
func Check(c Cluster) ([]Finding, error) {
	r, err := Inspect(c)
	return r.Findings, err
}

// Inspect is Check for those who want to repair what it finds.
func Inspect(c Cluster) (Report, error) {
	s := &state{c: c}
	if err := s.load(); err != nil {
		return Report{}, err
	}
	for _, check := range []func(){
		s.owners, s.names, s.links, s.trees, s.owing, s.uploads, s.claims, s.transactions, s.clients, s.bytes, s.places, s.disks, s.objects,
	} {
		check()
	}
	s.weigh()
	slices.SortStableFunc(s.found, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Ino, b.Ino), cmp.Compare(a.Code, b.Code))
	})
	return Report{s.found, s}, nil
}
