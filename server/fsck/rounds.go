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
// until every suspicion of the first is confirmed or gone; unsure is how many are neither after the last.
func Running(ctx context.Context, read func(context.Context) (Cluster, error)) (found []Finding, unsure int, err error) {
	var before []Finding
	for round := range maxRounds {
		c, err := read(ctx)
		if err != nil {
			return nil, 0, err
		}
		now, err := Check(c)
		if err != nil {
			return nil, 0, err
		}
		found, unsure = nil, 0
		var next []Finding
		for _, f := range now {
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
		if before = next; unsure == 0 {
			break
		}
	}
	return found, unsure, nil
}

// same reports whether two findings of different rounds are about the same thing.
func (f Finding) same(o Finding) bool {
	return f.Code == o.Code && slices.EqualFunc(f.rows, o.rows, bytes.Equal)
}

// weigh notes for each finding its path, now that all rows are read, and what the rows say that it comes from.
func (s *state) weigh() {
	promised := map[string]bool{}
	for _, p := range s.promises {
		for _, r := range p.GetRows() {
			promised[string(r.GetKey())] = true
		}
	}
	for i := range s.found {
		f := &s.found[i]
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
			if meta.RowKind(k) != 0 {
				groups[s.c.View.Owner(binary.BigEndian.Uint64(k[1:]))] = true
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
}
