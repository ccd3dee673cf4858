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
	sessions  map[objcache.ClientID]*record.Session
	locks     map[objcache.Ino]locks
	groups    []*rows
}

type locks struct {
	meta.FileLocks
	group objcache.GroupID
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
	local  map[string][]byte            // rows of this replica alone that say where extents lie
	places map[uint64]objcache.ChunkKey // extents that have a place on the group's disk, and of which chunk they are
	at     map[uint64]*record.Place     // and where

	incarnation string
	disk        Disk
}

func chunkOf(p *record.Placed) objcache.ChunkKey {
	return objcache.ChunkKey{Ino: objcache.Ino(p.GetIno()), Index: p.GetChunk()}
}

// place parses the rows of this replica alone.
func (s *state) place(g *rows) {
	for k, v := range g.local {
		if lo, hi := group.IncarnationBounds(); k >= string(lo) && k < string(hi) {
			g.incarnation = string(v)
			continue
		}
		p := &record.Placed{}
		if err := proto.Unmarshal(v, p); err != nil || len(k) != 10 || binary.BigEndian.Uint64([]byte(k[2:])) != p.GetId() {
			s.add(corruptRow, Error, g.id, 0, "row %x does not say where an extent lies: %q", k, fmt.Sprint(err)).by([]byte(k))
			continue
		}
		g.put(p)
	}
}

func (g *rows) put(p *record.Placed) {
	g.places[p.GetId()], g.at[p.GetId()] = chunkOf(p), p.GetPlace()
}

func (s *state) load() error {
	s.inodes, s.entries, s.chunks = map[objcache.Ino]*inode{}, map[objcache.Ino]map[string]*entry{}, map[objcache.ChunkKey]*chunk{}
	s.cookies, s.locks = map[objcache.Ino]map[uint64]string{}, map[objcache.Ino]locks{}
	s.sessions = map[objcache.ClientID]*record.Session{}
	var groups []*rows
	for _, g := range s.c.Groups {
		r, err := read(g)
		if err != nil {
			return err
		}
		s.place(r)
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
	r := &rows{
		id: g.ID, disk: g.Disk, by: map[string][]byte{}, local: map[string][]byte{}, places: map[uint64]objcache.ChunkKey{}, at: map[uint64]*record.Place{},
	}
	each := g.Each
	if each == nil {
		each = func(f func(k, v []byte) error) error { return Each(g.Rows, f) }
	}
	err := each(func(k, v []byte) error {
		if len(k) > 0 && k[0] == 'L' {
			r.local[string(k)] = bytes.Clone(v)
		} else {
			r.by[string(k)] = bytes.Clone(v)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("group %d: %w", g.ID, err)
	}
	return r, nil
}

// Each calls f for every row of a group that a check needs. Key and value are only valid during the call.
func Each(r meta.Reader, f func(key, value []byte) error) error {
	for _, bounds := range []func() ([]byte, []byte){meta.ReplicatedBounds, group.PlaceBounds, group.IncarnationBounds} {
		lo, hi := bounds()
		err := meta.Scan(r, lo, hi, func(k, v []byte) (bool, error) { return true, f(k, v) })
		if err != nil {
			return err
		}
	}
	return nil
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
				g.put(pl)
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
		s.corrupt(g, k, err)
	}
}

func (s *state) corrupt(g *rows, k []byte, err error) {
	if meta.RowKind(k) == 'e' {
		s.addName(corruptRow, Error, g.id, inoOf(k), meta.EntryName(k), "row %x does not parse: %q", k, err.Error())
		return
	}
	f := s.add(corruptRow, Error, g.id, 0, "row %x does not parse: %q", k, err.Error()).by(k)
	if meta.RowKind(k) != 0 {
		f.Ino = inoOf(k)
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
		if err := proto.Unmarshal(v, p); err != nil {
			return err
		}
		s.promises = append(s.promises, promise{p, g.id})
	case within(meta.DecisionBounds()):
		d := &record.Decision{}
		if err := proto.Unmarshal(v, d); err != nil {
			return err
		}
		s.decisions = append(s.decisions, decision{d, g.id})
	case within(meta.SessionBounds()):
		x := &record.Session{}
		c, ok := meta.ParseSessionKey(k)
		if err := proto.Unmarshal(v, x); err != nil || !ok {
			return fmt.Errorf("session: %w", err)
		}
		s.sessions[c] = x
	case within(meta.FileLocksBounds()):
		ino, ok := meta.ParseFileLocksKey(k)
		all, err := meta.DecodeFileLocks(v)
		if err != nil || !ok {
			return fmt.Errorf("locks: %w", err)
		}
		s.locks[ino] = locks{all, g.id}
	}
	return nil
}

// add notes a finding; ino 0 is none. The inode's row is among those that say so.
func (s *state) add(code Code, sev Severity, g objcache.GroupID, ino objcache.Ino, format string, args ...any) *Finding {
	f := Finding{Code: code, Severity: sev, Group: g, Ino: ino, Text: fmt.Sprintf(format, args...), Repair: remedy(code)}
	if ino != 0 {
		f.rows = [][]byte{meta.InodeKey(ino)}
	}
	s.found = append(s.found, f)
	return &s.found[len(s.found)-1]
}

// addName notes a finding about a name, which need not lead to an inode.
func (s *state) addName(code Code, sev Severity, g objcache.GroupID, dir objcache.Ino, name string, format string, args ...any) *Finding {
	f := s.add(code, sev, g, 0, format, args...)
	f.Dir, f.Name = dir, name
	return f.by(meta.InodeKey(dir), meta.EntryKey(dir, name))
}

// by adds rows, there or not, without which the finding would not be one.
func (f *Finding) by(keys ...[]byte) *Finding {
	f.rows = append(f.rows, keys...)
	return f
}

// inChunk says which chunk a finding is about.
func (f *Finding) inChunk(k objcache.ChunkKey) *Finding {
	f.Chunk = &k.Index
	return f.by(meta.ChunkKey(k))
}
