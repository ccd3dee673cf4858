package fsck

import (
	"maps"
	"slices"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
)

// directory makes the names, positions and counts of a directory agree again.
func (p *planner) directory(f Finding) {
	ino := f.Dir
	if ino == 0 {
		ino = f.Ino
	}
	d := p.living(ino)
	if d == nil || !p.once("directory", ino) {
		return
	}
	c := p.begin()
	dropped := p.corrected(c, d)
	p.positions(c, d)
	p.count(d)
	if dropped > 0 {
		d.Dir.Complete, d.Dir.LoadedAt = false, 0
	}
	c.inode(d)
	r := p.say(f, "made whole: %d names, %d went", d.GetDir().GetChildren(), dropped)
	r.Path, r.Ino = p.path(ino), ino
	c.commit(r)
}

// corrected drops names of nothing, atMost of them, and corrects the others.
func (p *planner) corrected(c *change, d *inode) (dropped int) {
	dir := objcache.Ino(d.GetIno())
	for _, name := range slices.Sorted(maps.Keys(p.entries[dir])) {
		e := p.entries[dir][name]
		if e.group != d.group {
			continue // said to be misplaced
		}
		p.settleName(c, e)
		ino := objcache.Ino(e.GetIno())
		in := p.inodes[ino]
		switch {
		case ino == 0:
		case p.holds(in, dir, name):
			e.Mode = in.GetMode() & objcache.ModeMask
		case dropped < atMost && !p.only(in):
			c.expect(p.c.View.OwnerOfInode(ino), meta.InodeKey(ino))
			p.expectNames(c, in)
			p.dropName(c, dir, name, e)
			dropped++
			continue
		}
		c.put(e.group, meta.EntryKey(dir, name), e.DirEntry)
	}
	return dropped
}

// settleName takes away what a name says of inodes that are not there, or have nothing to do with it.
func (p *planner) settleName(c *change, e *entry) {
	e.Debts = slices.DeleteFunc(e.Debts, func(x *record.Debt) bool {
		ino := objcache.Ino(x.GetIno())
		if p.inodes[ino] != nil {
			return false
		}
		c.expect(p.c.View.OwnerOfInode(ino), meta.InodeKey(ino))
		return true
	})
	b := objcache.Ino(e.GetBusy())
	if b == 0 || p.inodes[b] != nil && (e.GetIno() == e.GetBusy() || owes(e, b)) {
		return
	}
	if p.inodes[b] == nil {
		c.expect(p.c.View.OwnerOfInode(b), meta.InodeKey(b))
	}
	e.Busy = 0
}

// expectNames makes a repair depend on the names that an inode has.
func (p *planner) expectNames(c *change, in *inode) {
	if in == nil {
		return
	}
	for _, l := range in.GetLinks() {
		if dir := objcache.Ino(l.GetDir()); dir != objcache.RootIno && p.named(objcache.Ino(in.GetIno()), l) {
			c.expect(p.entries[dir][l.GetName()].group, meta.EntryKey(dir, l.GetName()))
		}
	}
}

func owes(e *entry, ino objcache.Ino) bool {
	return slices.ContainsFunc(e.GetDebts(), func(x *record.Debt) bool { return x.GetIno() == uint64(ino) })
}

// holds reports whether an inode is there and says that it has the name.
func (p *planner) holds(in *inode, dir objcache.Ino, name string) bool {
	return in != nil && !in.GetDead() && !in.GetOrphan() &&
		slices.ContainsFunc(in.GetLinks(), func(l *record.Link) bool { return l.GetDir() == uint64(dir) && l.GetName() == name })
}

// only reports whether an inode that is there has no name that it knows.
func (p *planner) only(in *inode) bool {
	return in != nil && !in.GetDead() && !in.GetOrphan() &&
		!slices.ContainsFunc(in.GetLinks(), func(l *record.Link) bool { return p.named(objcache.Ino(in.GetIno()), l) })
}

// dropName takes a name away, of which a tombstone stays if somebody owes for it.
func (p *planner) dropName(c *change, dir objcache.Ino, name string, e *entry) {
	if p.cookies[dir][e.GetCookie()] == name {
		c.row(e.group, meta.CookieKey(dir, e.GetCookie()), nil)
		delete(p.cookies[dir], e.GetCookie())
	}
	if len(e.GetDebts()) == 0 {
		c.row(e.group, meta.EntryKey(dir, name), nil)
		delete(p.entries[dir], name)
		return
	}
	e.DirEntry = &record.DirEntry{Debts: e.GetDebts(), Busy: e.GetBusy(), Changed: e.GetChanged()}
	c.put(e.group, meta.EntryKey(dir, name), e.DirEntry)
}

// positions gives every name exactly one, and takes away those of nothing: atMost of each.
func (p *planner) positions(c *change, d *inode) {
	dir := objcache.Ino(d.GetIno())
	gone, given := 0, 0
	for _, cookie := range slices.Sorted(maps.Keys(p.cookies[dir])) {
		d.Dir.NextCookie = max(d.Dir.GetNextCookie(), cookie)
		e := p.entries[dir][p.cookies[dir][cookie]]
		if gone < atMost && (e == nil || e.GetCookie() != cookie || e.GetIno() == 0) {
			gone++
			c.row(d.group, meta.CookieKey(dir, cookie), nil)
			delete(p.cookies[dir], cookie)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.entries[dir])) {
		e := p.entries[dir][name]
		if e.GetIno() == 0 || e.group != d.group || p.cookies[dir][e.GetCookie()] == name || given == atMost {
			continue
		}
		given++
		p.position(c, d, name, e)
		c.put(e.group, meta.EntryKey(dir, name), e.DirEntry)
	}
}

func (p *planner) position(c *change, d *inode, name string, e *entry) {
	dir := objcache.Ino(d.GetIno())
	d.Dir.NextCookie++
	e.Cookie = d.Dir.GetNextCookie()
	if p.cookies[dir] == nil {
		p.cookies[dir] = map[uint64]string{}
	}
	p.cookies[dir][e.GetCookie()] = name
	c.row(d.group, meta.CookieKey(dir, e.GetCookie()), []byte(name))
}

// count corrects what a directory counts.
func (p *planner) count(d *inode) {
	ino := objcache.Ino(d.GetIno())
	d.Nlink = 2 + p.subdirs(ino)
	d.Dir.Children = 0
	for _, e := range p.entries[ino] {
		if e.GetIno() != 0 {
			d.Dir.Children++
		}
	}
}

// subdirs is how many directories say that they stand in a directory.
func (p *planner) subdirs(dir objcache.Ino) (n uint32) {
	for _, in := range p.inodes {
		if in.isDir() && !in.GetDead() && len(in.GetLinks()) == 1 && in.GetLinks()[0].GetDir() == uint64(dir) {
			n++
		}
	}
	return n
}

// noDirectory takes away names that stand in no directory: their inodes look for a place of their own.
func (p *planner) noDirectory(f Finding) {
	g := p.c.View.OwnerOfInode(f.Ino)
	if p.living(f.Ino) != nil || p.rowsOf(g) == nil || !p.once("names", f.Ino) {
		return
	}
	c := p.begin()
	c.expect(g, meta.InodeKey(f.Ino))
	n := 0
	for _, name := range slices.Sorted(maps.Keys(p.entries[f.Ino])) {
		if e := p.entries[f.Ino][name]; e.group == g && n < atMost {
			n++
			e.Debts = nil
			p.dropName(c, f.Ino, name, e)
		}
	}
	for _, cookie := range slices.Sorted(maps.Keys(p.cookies[f.Ino])) {
		if n < 2*atMost && p.entries[f.Ino][p.cookies[f.Ino][cookie]] == nil {
			n++
			c.row(g, meta.CookieKey(f.Ino, cookie), nil)
		}
	}
	c.commit(p.say(f, "names of a directory that is not there went"))
}

// unlinked settles a name that its inode does not know: another name is enough.
func (p *planner) unlinked(f Finding) {
	if in := p.inodes[f.Ino]; p.only(in) {
		p.file(f)
		return
	}
	p.directory(f)
}

// counted corrects st_nlink.
func (p *planner) counted(f Finding) {
	if in := p.inodes[f.Ino]; in != nil && in.isDir() {
		p.directory(f)
		return
	}
	p.file(f)
}
