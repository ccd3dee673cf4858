package fsck

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/group"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
)

const corruptRow Code = "row-corrupt" // a row does not parse

// state is the cluster's rows, parsed.
type state struct {
	c         Cluster
	found     []Finding
	inodes    map[objcache.Ino]*inode
	entries   map[objcache.Ino]map[string]*entry
	cookies   map[objcache.Ino]map[uint64]string
	chunks    map[objcache.ChunkKey]*chunk
	owed      []owed
	promises  []promise
	decisions []decision
	groups    []*rows
}

type inode struct {
	*record.Inode
	group objcache.GroupID
}

type entry struct {
	*record.DirEntry
	group objcache.GroupID
}

type chunk struct {
	*record.Chunk
	group objcache.GroupID
}

type owed struct {
	since int64
	ino   objcache.Ino
	group objcache.GroupID
}

type promise struct {
	*record.Prepared
	group objcache.GroupID
}

type decision struct {
	*record.Decision
	group objcache.GroupID
}

// rows are one group's, by key.
type rows struct {
	id     objcache.GroupID
	by     map[string][]byte
	places map[uint64]bool // extents that have a place on the group's disk
}

func (s *state) load() error {
	s.inodes, s.entries, s.chunks = map[objcache.Ino]*inode{}, map[objcache.Ino]map[string]*entry{}, map[objcache.ChunkKey]*chunk{}
	s.cookies = map[objcache.Ino]map[uint64]string{}
	var groups []*rows
	for _, g := range s.c.Groups {
		r, err := read(g)
		if err != nil {
			return err
		}
		groups = append(groups, r)
	}
	s.settle(groups)
	for _, g := range groups {
		for _, k := range slices.Sorted(maps.Keys(g.by)) {
			s.parse(g, []byte(k), g.by[k])
		}
	}
	s.groups = groups
	return nil
}

func read(g Group) (*rows, error) {
	r := &rows{id: g.ID, by: map[string][]byte{}, places: map[uint64]bool{}}
	lo, hi := meta.ReplicatedBounds()
	err := meta.Scan(g.Rows, lo, hi, func(k, v []byte) (bool, error) {
		r.by[string(k)] = bytes.Clone(v)
		return true, nil
	})
	if err != nil {
		return nil, fmt.Errorf("group %d: %w", g.ID, err)
	}
	lo, hi = group.PlaceBounds()
	err = meta.Scan(g.Rows, lo, hi, func(k, _ []byte) (bool, error) {
		r.places[binary.BigEndian.Uint64(k[2:])] = true
		return true, nil
	})
	if err != nil {
		return nil, fmt.Errorf("group %d: %w", g.ID, err)
	}
	return r, nil
}

// settle applies promises whose transaction is committed: their groups have only not heard of it.
func (s *state) settle(groups []*rows) {
	committed := map[string]bool{}
	lo, hi := meta.DecisionBounds()
	for _, g := range groups {
		for k := range g.by {
			if k >= string(lo) && k < string(hi) {
				committed[k[len(lo):]] = true
			}
		}
	}
	lo, hi = meta.PreparedBounds()
	for _, g := range groups {
		for k, v := range maps.Clone(g.by) {
			p := &record.Prepared{}
			if k < string(lo) || k >= string(hi) || !committed[k[len(lo):]] || proto.Unmarshal(v, p) != nil {
				continue
			}
			for _, r := range p.GetRows() {
				if r.Value == nil {
					delete(g.by, string(r.GetKey()))
				} else {
					g.by[string(r.GetKey())] = r.GetValue()
				}
			}
			for _, pl := range p.GetPlaced() {
				g.places[pl.GetId()] = true
			}
			for _, d := range p.GetDropped() {
				delete(g.places, d.GetId())
			}
		}
	}
}

// Positions in keys of space 'H': H hash8 kind ino8 rest (server/meta).
const (
	inoAt  = 10
	restAt = 18
)

func (s *state) parse(g *rows, k, v []byte) {
	var err error
	switch meta.RowKind(k) {
	case 'i':
		in := &record.Inode{}
		if err = proto.Unmarshal(v, in); err == nil {
			s.addInode(g.id, in)
		}
	case 'e':
		e, dir := &record.DirEntry{}, inoOf(k)
		if err = proto.Unmarshal(v, e); err == nil {
			if s.entries[dir] == nil {
				s.entries[dir] = map[string]*entry{}
			}
			s.entries[dir][meta.EntryName(k)] = &entry{e, g.id}
		}
	case 'c':
		dir := inoOf(k)
		if s.cookies[dir] == nil {
			s.cookies[dir] = map[uint64]string{}
		}
		s.cookies[dir][binary.BigEndian.Uint64(k[restAt:])] = string(v)
	case 'x':
		c := &record.Chunk{}
		if err = proto.Unmarshal(v, c); err == nil {
			s.chunks[objcache.ChunkKey{Ino: inoOf(k), Index: binary.BigEndian.Uint32(k[restAt:])}] = &chunk{c, g.id}
		}
	case 0:
		err = s.parseGroupRow(g, k, v)
	}
	if err != nil {
		s.add(corruptRow, Error, g.id, 0, "row %x: %v", k, err)
	}
}

func inoOf(k []byte) objcache.Ino { return objcache.Ino(binary.BigEndian.Uint64(k[inoAt:])) }

func (s *state) parseGroupRow(g *rows, k, v []byte) error {
	if since, ino, ok := meta.ParseDirtyKey(k); ok {
		s.owed = append(s.owed, owed{since, ino, g.id})
		return nil
	}
	within := func(lo, hi []byte) bool { return bytes.Compare(k, lo) >= 0 && bytes.Compare(k, hi) < 0 }
	switch {
	case within(meta.PreparedBounds()):
		p := &record.Prepared{}
		s.promises = append(s.promises, promise{p, g.id})
		return proto.Unmarshal(v, p)
	case within(meta.DecisionBounds()):
		d := &record.Decision{}
		s.decisions = append(s.decisions, decision{d, g.id})
		return proto.Unmarshal(v, d)
	}
	return nil
}

// add notes a finding; ino 0 is none.
func (s *state) add(code Code, sev Severity, g objcache.GroupID, ino objcache.Ino, format string, args ...any) {
	f := Finding{Code: code, Severity: sev, Group: g, Ino: ino, Text: fmt.Sprintf(format, args...)}
	if ino != 0 {
		f.Path = s.path(ino)
	}
	s.found = append(s.found, f)
}
