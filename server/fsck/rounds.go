package fsck

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"path"
	"slices"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/meta"
)

// maxRounds is how often a running cluster is read at most.
const maxRounds = 8

// Running checks a cluster that goes on working. read reads all groups anew, each as of one moment and all of them later than at the call before.
//
// Rows of two groups are not of one moment, so what they seem to say against each other need never have been so. It counts when the next round finds the
// same rows with the same content, none of them in a transaction under way: rows are never the same again after a change (versions, change times and log
// indexes grow), so all of them were as read at the moment between the two rounds. What one group's rows say among themselves counts at once. Rounds go on
// until every suspicion of the first is confirmed or gone; unsure is how many are neither after the last. The report is of the rows of the last round.
func Running(ctx context.Context, read func(context.Context) (Cluster, error)) (r Report, unsure int, err error) {
	var before []Finding
	for round := range maxRounds {
		c, err := read(ctx)
		if err != nil {
			return Report{}, 0, err
		}
		if r, err = Inspect(c); err != nil {
			return Report{}, 0, err
		}
		var found, next []Finding
		unsure = 0
		for _, f := range r.Findings {
			old := slices.IndexFunc(before, f.same)
			switch {
			case f.sure, old >= 0 && !f.doubtful && !before[old].doubtful && f.evidence == before[old].evidence:
				found = append(found, f)
			case round == 0 || old >= 0:
				unsure++
			default:
				continue // it was not there when the check began
			}
			next = append(next, f)
		}
		r.Findings = found
		if before = next; unsure == 0 {
			break
		}
	}
	return r, unsure, nil
}

// same reports whether two findings of different rounds are about the same thing.
func (f Finding) same(o Finding) bool {
	return f.Code == o.Code && slices.EqualFunc(f.rows, o.rows, bytes.Equal)
}

// weigh notes for each finding its path, now that all rows are read, and what the rows say that it comes from. What depends on a group that was not read is
// no finding: nobody knows.
func (s *state) weigh() {
	promised := map[string]bool{}
	for _, p := range s.promises {
		for _, r := range p.GetRows() {
			promised[string(r.GetKey())] = true
		}
	}
	there := map[objcache.GroupID]bool{}
	for _, g := range s.groups {
		there[g.id] = true
	}
	s.found = slices.DeleteFunc(s.found, func(f Finding) bool {
		if f.Code == groupAbsent {
			return false
		}
		return slices.ContainsFunc(f.rows, func(k []byte) bool { g := s.ownerOf(k); return g != 0 && !there[g] })
	})
	for i := range s.found {
		s.weighOne(&s.found[i], promised)
	}
}

// ownerOf is the group that a row belongs to; 0 when its key does not say.
func (s *state) ownerOf(k []byte) objcache.GroupID {
	_, session := meta.ParseSessionKey(k)
	_, lock := meta.ParseFileLocksKey(k)
	switch {
	case meta.RowKind(k) != 0:
		return s.c.View.Owner(binary.BigEndian.Uint64(k[1:]))
	case session || lock:
		return s.c.View.Owner(binary.BigEndian.Uint64(k[2:]))
	}
	return 0
}

func (s *state) weighOne(f *Finding, promised map[string]bool) {
	switch {
	case f.Name != "":
		f.Path = path.Join(s.path(f.Dir), f.Name)
	case f.Ino != 0:
		f.Path = s.path(f.Ino)
	}
	slices.SortFunc(f.rows, bytes.Compare)
	f.rows = slices.CompactFunc(f.rows, bytes.Equal)
	h, groups := sha256.New(), map[objcache.GroupID]bool{f.Group: true}
	for _, k := range f.rows {
		f.doubtful = f.doubtful || promised[string(k)]
		if g := s.ownerOf(k); g != 0 {
			groups[g] = true
		}
		for _, g := range s.groups {
			if v, ok := g.by[string(k)]; ok {
				groups[g.id] = true
				h.Write(binary.BigEndian.AppendUint32(slices.Clone(k), uint32(g.id)))
				h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(v))))
				h.Write(v)
			}
		}
	}
	f.evidence, f.sure = hex.EncodeToString(h.Sum(nil)), len(groups) == 1
}
