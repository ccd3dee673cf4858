package fsck

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
)

// Options say what a plan may do.
type Options struct {
	// RevertLost lets go of what only we had and can never be whole again: a file with damaged or missing bytes falls back to its last persisted
	// version, and goes if it has none.
	RevertLost bool
}

// Repair is one transaction that takes findings away: rows of groups, each only if it is still what the check saw. Repairs are carried out in their order,
// for a later one builds on the rows of those before; one that is refused (Conflict) is planned anew by the next check.
type Repair struct {
	Code  Code             `json:"code"`
	Group objcache.GroupID `json:"group"` // to be asked to coordinate
	Path  string           `json:"path,omitempty"`
	Ino   objcache.Ino     `json:"ino,omitempty"`
	Text  string           `json:"text"` // what it does
	// Lost says that it lets go of content that only we had.
	Lost bool `json:"lost,omitempty"`

	Steps  []*rpc.Step        `json:"-"`
	Decide *rpc.DecideRequest `json:"-"` // instead of steps: the outcome of a transaction, for Group
	Expire uint64             `json:"-"` // instead of steps: the client whose staged bytes Group gives back
}

// Where is the path of what is repaired, else what else names it.
func (r Repair) Where() string { return Finding{Path: r.Path, Ino: r.Ino, Group: r.Group}.Where() }

// atMost bounds the names that one repair changes: they go into one log entry of each group.
const atMost = 500

// planner carries repairs out over the rows of the report as it plans them.
type planner struct {
	*state
	opt     Options
	repairs []Repair
	done    map[string]bool                      // what has been looked at, by what it is
	shared  map[objcache.GroupID]map[uint64]bool // extents that more than one chunk names: their bytes stay
}

// Plan says how to take findings of the report away, as far as that is safe. The report is used up. What is left after one round (there is a bound to what one
// transaction changes, and some findings hide others) is seen by the next check.
func (r Report) Plan(found []Finding, o Options) []Repair {
	p := &planner{state: r.s, opt: o, done: map[string]bool{}, shared: map[objcache.GroupID]map[uint64]bool{}}
	p.share()
	for _, f := range found {
		if do := handlers[f.Code].do; do != nil && !f.doubtful {
			do(p, f)
		}
	}
	return p.repairs
}

// share finds the extents that more than one chunk names.
func (p *planner) share() {
	named := map[objcache.GroupID]map[uint64]bool{}
	for _, g := range p.groups {
		named[g.id], p.shared[g.id] = map[uint64]bool{}, map[uint64]bool{}
	}
	for _, c := range p.chunks {
		for id := range extents(c.Chunk) {
			p.shared[c.group][id] = p.shared[c.group][id] || named[c.group][id]
			named[c.group][id] = true
		}
	}
}

// once reports whether something of this name is looked at for the first time.
func (p *planner) once(what string, ino objcache.Ino) bool {
	k := fmt.Sprint(what, ino)
	first := !p.done[k]
	p.done[k] = true
	return first
}

// change is a repair in the making.
type change struct {
	p     *planner
	steps map[string]*rpc.RepairRows
	order []string
}

func (p *planner) begin() *change { return &change{p: p, steps: map[string]*rpc.RepairRows{}} }

func (p *planner) rowsOf(g objcache.GroupID) *rows {
	i := slices.IndexFunc(p.groups, func(r *rows) bool { return r.id == g })
	if i < 0 {
		return nil
	}
	return p.groups[i]
}

func (c *change) step(g objcache.GroupID, lock string) *rpc.RepairRows {
	k := fmt.Sprint(g, " ", lock)
	if c.steps[k] == nil {
		c.steps[k] = &rpc.RepairRows{Group: uint32(g)}
		c.order = append(c.order, k)
	}
	return c.steps[k]
}

// row replaces a row of a group; after nil deletes it. Rows that stay as they are cost nothing.
func (c *change) row(g objcache.GroupID, key, after []byte) {
	rs := c.p.rowsOf(g)
	before, had := rs.by[string(key)]
	if !had && after == nil || had && after != nil && slices.Equal(before, after) {
		return
	}
	r := &rpc.RepairRow{Key: key, After: after}
	if had {
		r.Before = append([]byte{}, before...)
	}
	s := c.step(g, meta.LockOfRow(key))
	s.Rows = append(s.Rows, r)
	if meta.RowKind(key) == 'x' {
		s.Spare = c.p.spare(g, before)
	}
	if after == nil {
		delete(rs.by, string(key))
	} else {
		rs.by[string(key)] = after
	}
}

// spare lists extents of a chunk that another names too.
func (p *planner) spare(g objcache.GroupID, row []byte) (ids []uint64) {
	ch := &record.Chunk{}
	if proto.Unmarshal(row, ch) != nil {
		return nil
	}
	for id := range extents(ch) {
		if p.shared[g][id] {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// expect makes the repair depend on a row, there or not, that it does not change.
func (c *change) expect(g objcache.GroupID, key []byte) {
	rs := c.p.rowsOf(g)
	if rs == nil {
		return
	}
	r := &rpc.RepairRow{Key: key, Keep: true}
	if v, had := rs.by[string(key)]; had {
		r.Before = append([]byte{}, v...)
	}
	s := c.step(g, meta.LockOfRow(key))
	s.Rows = append(s.Rows, r)
}

func (c *change) put(g objcache.GroupID, key []byte, m proto.Message) {
	v, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		panic(err) // it was parsed from a row
	}
	if v == nil {
		v = []byte{}
	}
	c.row(g, key, v)
}

// inode writes an inode, and the index of those that owe something with it.
func (c *change) inode(in *inode) {
	ino := objcache.Ino(in.GetIno())
	owes := meta.Owes(in.Inode)
	if !owes && in.GetDirtySince() != 0 {
		c.row(in.group, meta.DirtyKey(in.GetDirtySince(), ino), nil)
		in.DirtySince = 0
	}
	if owes {
		in.DirtySince = max(in.GetDirtySince(), 1)
		c.row(in.group, meta.DirtyKey(in.GetDirtySince(), ino), []byte{})
	}
	c.put(in.group, meta.InodeKey(ino), in.Inode)
}

// dropInode removes an inode with what hangs on it but its chunks.
func (c *change) dropInode(in *inode) {
	ino := objcache.Ino(in.GetIno())
	if in.GetDirtySince() != 0 {
		c.row(in.group, meta.DirtyKey(in.GetDirtySince(), ino), nil)
	}
	c.row(in.group, meta.InodeKey(ino), nil)
	if _, ok := c.p.locks[ino]; ok {
		c.row(in.group, meta.FileLocksKey(ino), nil)
		delete(c.p.locks, ino)
	}
	delete(c.p.inodes, ino)
}

// relist has a directory read again from external storage before it is used the next time.
func (c *change) relist(d *inode) {
	d.Dir.Complete, d.Dir.LoadedAt = false, 0
	c.inode(d)
}

// commit adds the repair if it changes anything.
func (c *change) commit(r Repair) {
	changes := false
	for _, k := range c.order {
		s := c.steps[k]
		changes = changes || len(s.GetFree()) > 0 || slices.ContainsFunc(s.GetRows(), func(r *rpc.RepairRow) bool { return !r.GetKeep() })
		r.Steps = append(r.Steps, &rpc.Step{Step: &rpc.Step_RepairRows{RepairRows: s}})
	}
	if !changes {
		return
	}
	r.Group = objcache.GroupID(r.Steps[0].GetRepairRows().GetGroup())
	c.p.repairs = append(c.p.repairs, r)
}

func (p *planner) say(f Finding, format string, args ...any) Repair {
	return Repair{Code: f.Code, Path: f.Path, Ino: f.Ino, Text: fmt.Sprintf(format, args...)}
}

// living is a directory that names may stand in; nil when there is none.
func (p *planner) living(ino objcache.Ino) *inode {
	if d := p.inodes[ino]; d != nil && d.isDir() && d.Dir != nil && !d.GetDead() && p.owned(d) {
		return d
	}
	return nil
}

// owned reports whether an inode lies where it belongs: the others are not touched.
func (p *planner) owned(in *inode) bool {
	return in.group == p.c.View.OwnerOfInode(objcache.Ino(in.GetIno())) && p.rowsOf(in.group) != nil
}

// named reports whether a link is a name that the directory knows.
func (p *planner) named(ino objcache.Ino, l *record.Link) bool {
	dir := objcache.Ino(l.GetDir())
	e := p.entries[dir][l.GetName()]
	return dir == objcache.RootIno || e != nil && objcache.Ino(e.GetIno()) == ino
}
