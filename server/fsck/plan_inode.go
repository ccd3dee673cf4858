package fsck

import (
	"fmt"
	"maps"
	"slices"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
)

// file makes an inode and its names agree again, and the index of what is owed with it.
func (p *planner) file(f Finding) {
	in := p.inodes[f.Ino]
	if in == nil || in.GetDead() || in.GetOrphan() || !p.owned(in) || !p.once("inode", f.Ino) {
		return
	}
	was := in.GetLinks()
	links := slices.DeleteFunc(slices.Clone(was), func(l *record.Link) bool { return !p.named(f.Ino, l) })
	c := p.begin()
	text := "st_nlink and the index of what is owed are right again"
	if len(links) == 0 {
		links = p.namesOf(in)
		text = "the inode takes the name by which it is known"
	}
	if in.GetBucket() != "" && f.Ino == meta.BucketIno(in.GetBucket()) {
		links = []*record.Link{{Dir: uint64(objcache.RootIno), Name: in.GetBucket()}}
		text = "the bucket's directory stands at the top again"
	}
	if len(links) == 0 {
		p.homeless(c, f, in)
		return
	}
	for _, l := range was {
		if !slices.Contains(links, l) {
			p.relistAt(c, l)
			text = "a name of the inode that is not there went; the directory is listed again"
		}
	}
	in.Links, in.Nlink = links, uint32(len(links))
	if in.isDir() {
		in.Links = links[:1]
		in.Nlink = 2 + p.subdirs(f.Ino)
	} else if slices.ContainsFunc(links, func(l *record.Link) bool { return l.GetKey() == "" }) {
		in.Dirty = true
	}
	for _, l := range in.GetLinks() {
		if dir := objcache.Ino(l.GetDir()); p.entries[dir][l.GetName()] != nil {
			c.expect(p.entries[dir][l.GetName()].group, meta.EntryKey(dir, l.GetName()))
		}
	}
	c.inode(in)
	c.commit(p.say(f, "%s", text))
}

// namesOf finds entries that are an inode, although it does not know them.
func (p *planner) namesOf(in *inode) (links []*record.Link) {
	for _, dir := range slices.Sorted(maps.Keys(p.entries)) {
		if p.living(dir) == nil {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(p.entries[dir])) {
			if p.entries[dir][name].GetIno() == in.GetIno() {
				links = append(links, p.linkAt(in, dir, name))
			}
		}
	}
	return links
}

// linkAt is a name of an inode, with the object that stands under it if that is known.
func (p *planner) linkAt(in *inode, dir objcache.Ino, name string) *record.Link {
	for _, l := range in.GetLinks() {
		if l.GetDir() == uint64(dir) && l.GetName() == name {
			return l
		}
	}
	l := &record.Link{Dir: uint64(dir), Name: name}
	if b := in.GetBase(); b.GetDir() == uint64(dir) && b.GetName() == name && b.GetVersion() == in.GetVersion() {
		l.Key, l.Etag, l.Version = b.GetKey(), b.GetEtag(), b.GetVersion()
	}
	return l
}

// relistAt has the directory of a name listed again: external storage may still have an object there.
func (p *planner) relistAt(c *change, l *record.Link) {
	if d := p.living(objcache.Ino(l.GetDir())); d != nil {
		c.relist(d)
	}
}

// precious reports whether an inode holds what external storage does not have.
func (p *planner) precious(in *inode) bool {
	if in.isDir() {
		return slices.ContainsFunc(slices.Collect(maps.Values(p.entries[objcache.Ino(in.GetIno())])), func(e *entry) bool { return e.GetIno() != 0 })
	}
	if in.GetDirty() || in.GetAttrDirty() || in.GetIntent() != nil || in.GetBase() == nil && in.GetMode()&objcache.ModeMask != objcache.ModeRegular {
		return true
	}
	for _, k := range p.chunksOf(objcache.Ino(in.GetIno())) {
		if c := p.chunks[k]; c.GetDirty() && len(c.GetExtents()) > 0 {
			return true
		}
	}
	return false
}

func (p *planner) chunksOf(ino objcache.Ino) (ks []objcache.ChunkKey) {
	for k := range p.chunks {
		if k.Ino == ino {
			ks = append(ks, k)
		}
	}
	slices.SortFunc(ks, func(a, b objcache.ChunkKey) int { return int(a.Index) - int(b.Index) })
	return ks
}

// homeless finds a place for an inode without a name, or lets it go if external storage has all of it.
func (p *planner) homeless(c *change, f Finding, in *inode) {
	if !p.precious(in) {
		p.remove(c, in)
		c.commit(p.say(f, "gone: external storage has all of it, and is listed again"))
		return
	}
	d, l := p.placeFor(in)
	if d == nil && in.isDir() {
		p.remove(c, in)
		c.commit(p.say(f, "gone: there is no place for it; what stood in it gets a place of its own"))
		return
	}
	if d == nil {
		return // not even the bucket's directory is there
	}
	dir, ino := objcache.Ino(d.GetIno()), objcache.Ino(in.GetIno())
	old := p.entries[dir][l.GetName()]
	e := &entry{&record.DirEntry{Ino: uint64(ino), Mode: in.GetMode() & objcache.ModeMask}, d.group}
	if old != nil {
		e.Debts, e.Busy, e.Changed = old.GetDebts(), old.GetBusy(), old.GetChanged()
	} else {
		c.expect(d.group, meta.EntryKey(dir, l.GetName()))
	}
	p.position(c, d, l.GetName(), e)
	if p.entries[dir] == nil {
		p.entries[dir] = map[string]*entry{}
	}
	p.entries[dir][l.GetName()] = e
	in.Links, in.Nlink = []*record.Link{l}, 1
	if in.isDir() {
		in.Nlink = 2 + p.subdirs(ino)
	} else if l.GetKey() == "" {
		in.Dirty = true
	}
	p.count(d)
	c.inode(d)
	c.inode(in)
	c.put(e.group, meta.EntryKey(dir, l.GetName()), e.DirEntry)
	r := p.say(f, "found again as %q", l.GetName())
	r.Path = p.path(ino)
	c.commit(r)
}

// placeFor is where an inode without a name shall stand: where it was, or else, a file, in the top of its bucket.
func (p *planner) placeFor(in *inode) (*inode, *record.Link) {
	for _, l := range in.GetLinks() {
		d := p.living(objcache.Ino(l.GetDir()))
		if d != nil && !p.taken(objcache.Ino(l.GetDir()), l.GetName()) && !p.below(d, objcache.Ino(in.GetIno())) {
			return d, l
		}
	}
	if in.isDir() || in.GetBucket() == "" {
		return nil, nil
	}
	top := meta.BucketIno(in.GetBucket())
	name := fmt.Sprintf("lost+found-%d", in.GetIno())
	if d := p.living(top); d != nil && !p.taken(top, name) {
		return d, &record.Link{Dir: uint64(top), Name: name}
	}
	return nil, nil
}

// taken reports whether a directory has a name.
func (p *planner) taken(dir objcache.Ino, name string) bool {
	e := p.entries[dir][name]
	return e != nil && e.GetIno() != 0
}

// below reports whether a directory stands below an inode, or in a circle.
func (p *planner) below(d *inode, ino objcache.Ino) bool {
	for range 1000 {
		if d == nil || len(d.GetLinks()) == 0 || objcache.Ino(d.GetIno()) == objcache.RootIno {
			return false
		}
		if objcache.Ino(d.GetIno()) == ino {
			return true
		}
		d = p.inodes[objcache.Ino(d.GetLinks()[0].GetDir())]
	}
	return true
}

// remove takes an inode away with its chunks, and has the directories of its names listed again.
func (p *planner) remove(c *change, in *inode) {
	for _, l := range in.GetLinks() {
		p.relistAt(c, l)
	}
	c.dropInode(in)
	for _, k := range p.chunksOf(objcache.Ino(in.GetIno())) {
		c.row(p.chunks[k].group, meta.ChunkKey(k), nil)
		delete(p.chunks, k)
	}
}

// stale takes what the index says of an inode that owes nothing out of it.
func (p *planner) stale(f Finding) {
	if in := p.inodes[f.Ino]; in != nil && !meta.Owes(in.Inode) {
		in.DirtySince = 0
		c := p.begin()
		for _, o := range p.owed {
			if o.ino == f.Ino && o.group == in.group {
				c.row(o.group, meta.DirtyKey(o.since, o.ino), nil)
			}
		}
		c.inode(in)
		c.commit(p.say(f, "not listed any more"))
		return
	}
	c := p.begin()
	for _, o := range p.owed {
		in := p.inodes[o.ino]
		if o.ino == f.Ino && o.group == f.Group && (in == nil || in.group != o.group || in.GetDirtySince() != o.since) {
			c.row(o.group, meta.DirtyKey(o.since, o.ino), nil)
		}
	}
	c.commit(p.say(f, "not listed any more"))
}

// dirtied has a file persisted again of which external storage lacks bytes.
func (p *planner) dirtied(f Finding) {
	if in := p.inodes[f.Ino]; in != nil && p.owned(in) {
		in.Dirty = true
		c := p.begin()
		c.inode(in)
		c.commit(p.say(f, "dirty again: it is persisted"))
	}
}
