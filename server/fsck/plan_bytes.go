package fsck

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
)

func (f Finding) key() objcache.ChunkKey {
	k := objcache.ChunkKey{Ino: f.Ino}
	if f.Chunk != nil {
		k.Index = *f.Chunk
	}
	return k
}

// unpin lets go of what no upload needs.
func (p *planner) unpin(f Finding) {
	k := f.key()
	ch := p.chunks[k]
	if ch == nil || p.rowsOf(ch.group) == nil {
		return
	}
	c := p.begin()
	c.expect(p.c.View.OwnerOfInode(k.Ino), meta.InodeKey(k.Ino))
	it := p.inodes[k.Ino].intent()
	ch.Pins = slices.DeleteFunc(ch.Pins, func(x *record.Pin) bool { return it == nil || x.GetVersion() != it.GetVersion() })
	c.put(ch.group, meta.ChunkKey(k), ch.Chunk)
	c.commit(p.say(f, "the pin went"))
}

func (in *inode) intent() *record.Intent {
	if in == nil {
		return nil
	}
	return in.GetIntent()
}

// free gives bytes back that no row names.
func (p *planner) free(f Finding) {
	c := p.begin()
	k := f.key()
	s := c.step(f.Group, meta.LockChunks(uint64(k.Ino)))
	s.Free = append(s.Free, &rpc.FreeExtent{Id: f.Extent, Ino: uint64(k.Ino), Chunk: k.Index})
	c.commit(p.say(f, "%d bytes given back", f.Bytes))
}

// orphanChunk removes a chunk whose file is not there. Bytes that only we have go only if that was asked for.
func (p *planner) orphanChunk(f Finding) {
	for _, k := range p.chunksOf(f.Ino) {
		ch := p.chunks[k]
		lost := ch.GetDirty() && len(extents(ch.Chunk)) > 0
		if p.inodes[k.Ino] != nil || ch.group != f.Group || p.rowsOf(ch.group) == nil || lost && !p.opt.RevertLost {
			continue
		}
		c := p.begin()
		c.expect(p.c.View.OwnerOfInode(k.Ino), meta.InodeKey(k.Ino))
		c.row(ch.group, meta.ChunkKey(k), nil)
		delete(p.chunks, k)
		r := p.say(f, "chunk %v of a file that is not there went", k)
		r.Lost = lost
		c.commit(r)
	}
}

// lost takes a file with bytes that can never be whole again back to its last persisted version, all of it: never a mix of two.
func (p *planner) lost(f Finding) {
	in := p.inodes[f.Ino]
	if !p.opt.RevertLost || in == nil || in.isDir() || !p.owned(in) || !p.once("revert", f.Ino) {
		return
	}
	c := p.begin()
	b := in.GetBase()
	if b.GetKey() == "" || in.GetDead() || in.GetOrphan() {
		p.lostWhole(c, f, in)
		return
	}
	in.Version++
	in.Generation++
	in.Size, in.Dirty = b.GetSize(), false
	old := b.GetVersion()
	nb := proto.CloneOf(b)
	nb.Length, nb.Version = b.GetSize(), in.GetVersion()
	in.Base = nb
	for _, l := range in.GetLinks() {
		if l.GetKey() != "" && l.GetVersion() == old {
			l.Version = in.GetVersion()
		}
		in.Dirty = in.GetDirty() || l.GetKey() == "" || l.GetVersion() != in.GetVersion()
	}
	c.inode(in)
	for _, k := range p.chunksOf(f.Ino) {
		ch := p.chunks[k]
		ch.Chunk = &record.Chunk{Version: in.GetVersion()}
		c.put(ch.group, meta.ChunkKey(k), ch.Chunk)
	}
	r := p.say(f, "fell back to the version that is persisted as %s, %d bytes", nb.GetKey(), nb.GetSize())
	r.Lost = true
	c.commit(r)
}

// lostWhole ends a file of which no version was ever persisted, or that has no name any more.
func (p *planner) lostWhole(c *change, f Finding, in *inode) {
	for _, l := range in.GetLinks() {
		dir := objcache.Ino(l.GetDir())
		d, e := p.living(dir), p.entries[dir][l.GetName()]
		if d == nil || e == nil || e.GetIno() != in.GetIno() {
			continue
		}
		p.dropName(c, dir, l.GetName(), e)
		p.count(d)
		c.inode(d)
	}
	in.Links = nil
	p.remove(c, in)
	r := p.say(f, "gone: no version of it was ever persisted")
	r.Lost = true
	c.commit(r)
}

// unlock takes away locks of sessions that are over, and those on files that are gone.
func (p *planner) unlock(f Finding) {
	l, ok := p.locks[f.Ino]
	if !ok || p.rowsOf(l.group) == nil || !p.once("locks", f.Ino) {
		return
	}
	c := p.begin()
	if in := p.inodes[f.Ino]; in == nil || in.GetDead() {
		c.expect(p.c.View.OwnerOfInode(f.Ino), meta.InodeKey(f.Ino))
		l.FileLocks = meta.FileLocks{}
	}
	for _, s := range holders(l.FileLocks) {
		if p.sessions[s] == nil {
			l.Posix, l.Flock = l.Posix.Without(uint64(s)), l.Flock.Without(uint64(s))
		}
	}
	row, err := meta.FileLocksRow(f.Ino, l.FileLocks)
	if err != nil {
		return
	}
	c.row(l.group, row.GetKey(), row.GetValue())
	p.locks[f.Ino] = l
	c.commit(p.say(f, "unlocked"))
}

// expire gives back what a session has staged that is over.
func (p *planner) expire(f Finding) {
	if p.once("expire", objcache.Ino(f.Client)^objcache.Ino(f.Group)<<56) {
		r := p.say(f, "what session %x had outstanding was given back", f.Client)
		r.Group, r.Expire = f.Group, f.Client
		p.repairs = append(p.repairs, r)
	}
}

// abort ends a promise whose outcome nobody knows any more.
func (p *planner) abort(f Finding) {
	if f.tx == nil || f.Bytes > 0 && !p.opt.RevertLost {
		return
	}
	r := p.say(f, "transaction %v aborted", txOf(f.tx))
	r.Group, r.Lost = f.Group, f.Bytes > 0
	r.Decide = &rpc.DecideRequest{Group: uint32(f.Group), Client: f.tx.GetClient(), Seq: f.tx.GetSeq(), TxSeq: f.tx.GetTxSeq()}
	p.repairs = append(p.repairs, r)
}
