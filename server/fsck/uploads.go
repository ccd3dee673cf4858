package fsck

import (
	"maps"
	"slices"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/record"
)

// Codes of uploads under way.
const (
	claimOrphaned Code = "claim-without-holder" // a name's object is claimed by an inode that changes nothing
	claimLeft     Code = "claim-left"           // a claim although nothing is under way
	pinOrphaned   Code = "pin-without-intent"   // bytes are kept for an upload that nobody does
	intentLeft    Code = "intent-left"          // an upload although nothing is under way
	debtOrphaned  Code = "debt-without-debtor"  // a name is owed for by an inode that is gone
)

// uploads wants bytes to be pinned only for an upload that its inode knows of.
func (s *state) uploads() {
	for _, ino := range slices.Sorted(maps.Keys(s.inodes)) {
		if in := s.inodes[ino]; s.c.Quiet && in.GetIntent() != nil {
			s.add(intentLeft, Error, in.group, ino, "inode %d is being uploaded to %q", ino, in.GetIntent().GetKey())
		}
	}
	for k, c := range s.chunks {
		for _, p := range c.GetPins() {
			in := s.inodes[k.Ino]
			if in == nil || in.GetIntent() == nil || in.GetIntent().GetVersion() != p.GetVersion() {
				s.add(pinOrphaned, Error, c.group, k.Ino, "version %d of chunk %v is pinned for no upload", p.GetVersion(), k).inChunk(k)
			}
		}
	}
}

// claims wants a name's object to be claimed only by whoever may change it, and owed for only by somebody who is there.
func (s *state) claims() {
	for _, dir := range slices.Sorted(maps.Keys(s.entries)) {
		for _, name := range slices.Sorted(maps.Keys(s.entries[dir])) {
			s.claim(dir, name, s.entries[dir][name])
		}
	}
}

func (s *state) claim(dir objcache.Ino, name string, e *entry) {
	for _, d := range e.GetDebts() {
		if s.inodes[objcache.Ino(d.GetIno())] == nil {
			s.addName(debtOrphaned, Error, e.group, dir, name, "%q is owed for by inode %d, which has no row", name, d.GetIno()).of(objcache.Ino(d.GetIno()))
		}
	}
	busy := objcache.Ino(e.GetBusy())
	if busy == 0 {
		return
	}
	owes := slices.ContainsFunc(e.GetDebts(), func(d *record.Debt) bool { return d.GetIno() == e.GetBusy() })
	switch in := s.inodes[busy]; {
	case in == nil, e.GetIno() != e.GetBusy() && !owes:
		s.addName(claimOrphaned, Error, e.group, dir, name, "the object of %q is claimed by inode %d, which has nothing to do with it", name, busy).of(busy)
	case s.c.Quiet:
		s.addName(claimLeft, Error, e.group, dir, name, "the object of %q is claimed by inode %d", name, busy).of(busy)
	}
}
