package transfer

import (
	"context"
	"math/rand/v2"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/failpoint"
	"github.com/objcache/objcache/server/external"
	"github.com/objcache/objcache/server/group"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
	"github.com/objcache/objcache/server/ring"
)

// merging merges the pages of one listing.
type merging struct {
	t           *Transfer
	dir         *record.Inode
	prefix      string
	requested   uint64
	began       time.Time
	whole, last bool
	seen        map[string]bool
	table       map[string]*record.TableRow
	refused     int // keys that no path can express
	decided     bool
	ask         asking
}

// merging begins to merge a listing of a directory, or of one name, where the directory stands now; nil: nothing of it is to be listed now.
func (t *Transfer) merging(ctx context.Context, ino objcache.Ino) (*merging, error) {
	// Before it is known where the objects are: what moves from there on changes its row after this index.
	m := &merging{t: t, requested: t.cfg.Group.Applied(), began: t.now()}
	dir, err := meta.Inode(t.cfg.Group.DB(), ino)
	if err != nil || dir == nil || dir.GetDead() {
		return nil, err
	}
	if ours, err := t.standsThere(ctx, dir); err != nil || !ours {
		return nil, err
	}
	m.dir, m.prefix = dir, dir.GetDir().GetPrefix()
	m.ask = asking{mode: t.cfg.Foreign[dir.GetBucket()], answers: map[string]*answer{}, missing: map[string]bool{}}
	return m, nil
}

// batch is how many names go into one log entry.
const batch = 100

func (m *merging) merge(ctx context.Context, page external.Page) error {
	failpoint.Hit(failpoint.PageBefore)
	var names []*rpc.Listed
	for _, p := range page.Prefixes {
		if n, ok := m.name(strings.TrimSuffix(p, "/")); ok {
			names = append(names, &rpc.Listed{Name: n, Dir: true, Key: p})
		}
	}
	for _, o := range page.Objects {
		if o.Key == m.prefix {
			continue // the directory's own marker
		}
		if n, ok := m.name(o.Key); ok {
			names = append(names, &rpc.Listed{Name: n, Etag: o.ETag, Size: o.Size, Modified: o.Modified.UnixNano(), Key: o.Key})
		}
	}
	if m.whole {
		m.notePage(ctx, page)
		if err := m.askFor(ctx, names); err != nil {
			return err
		}
	}
	for len(names) > batch {
		if err := m.transact(ctx, names[:batch], false); err != nil {
			return err
		}
		names = names[batch:]
	}
	if m.whole && m.last {
		gone, err := m.vanished()
		if err != nil {
			return err
		}
		for len(gone) > batch {
			if err := m.transact(ctx, gone[:batch], false); err != nil {
				return err
			}
			gone = gone[batch:]
		}
		if err := m.transact(ctx, gone, false); err != nil {
			return err
		}
	}
	if m.refused > 0 && m.last {
		m.t.cfg.Logger.Warn("keys that no path can express stay untouched", "prefix", m.prefix, "keys", m.refused)
	}
	err := m.transact(ctx, names, m.whole && m.last)
	failpoint.Hit(failpoint.PageAfter)
	return err
}

// name is the entry that a key stands for; false when no path can express it, or it is ours to hide.
func (m *merging) name(key string) (string, bool) {
	n := strings.TrimPrefix(key, m.prefix)
	if m.prefix == "" && n == meta.HiddenDir {
		return "", false
	}
	if n == "" || n == "." || n == ".." || len(n) > 255 || strings.ContainsAny(n, "/\x00") || m.seen[n] {
		m.refused++
		return "", false
	}
	if m.seen != nil {
		m.seen[n] = true
	}
	return n, true
}

// vanished lists clean files that the whole listing did not show.
func (m *merging) vanished() ([]*rpc.Listed, error) {
	var gone []*rpc.Listed
	err := meta.ScanEntries(m.t.cfg.Group.DB(), objcache.Ino(m.dir.GetIno()), "", func(name string, row *record.DirEntry) (bool, error) {
		if row.GetIno() != 0 && row.GetEtag() != "" && !m.seen[name] && meta.Fresh(row, m.requested) {
			gone = append(gone, &rpc.Listed{Name: name})
		}
		return true, nil
	})
	return gone, err
}

// transact merges some names in one transaction with the owners of new and changed inodes.
func (m *merging) transact(ctx context.Context, names []*rpc.Listed, complete bool) error {
	if len(names) == 0 && !complete {
		return nil
	}
	var steps []*rpc.Step
	now := m.began.UnixNano()
	for _, n := range names {
		more, err := m.prepare(n, now)
		if err != nil {
			return err
		}
		steps = append(steps, more...)
	}
	page, err := m.page(names, complete)
	if err != nil {
		return err
	}
	steps = append(steps, page)
	_, err = m.t.cfg.Group.Transact(ctx, group.Tx{Header: &rpc.Header{Start: now}, Steps: steps})
	if err == nil || objcache.KindOf(err) != objcache.Conflict {
		return err
	}
	if err := pause(ctx, time.Millisecond+rand.N(5*time.Millisecond)); err != nil {
		return err
	}
	if names, err = m.withoutDirty(ctx, names); err != nil {
		return err
	}
	return m.transact(ctx, names, complete)
}

// page is the step at the directory's own row.
func (m *merging) page(names []*rpc.Listed, complete bool) (*rpc.Step, error) {
	p := &rpc.MergePage{
		Dir: m.dir.GetIno(), RequestedAt: m.requested, Complete: complete, Began: m.began.UnixNano(), Entries: names, Marker: m.ask.marker, Foreign: m.ask.foreign,
	}
	if complete && m.ask.self != nil {
		in := proto.CloneOf(m.dir)
		in.Ctime, in.DefaultAttrs = m.ask.marker, true
		understand(in, m.ask.self.meta, "")
		if !in.GetDefaultAttrs() {
			b, err := encode(in)
			if err != nil {
				return nil, err
			}
			p.Attributes = b
		}
	}
	return &rpc.Step{Step: &rpc.Step_MergePage{MergePage: p}}, nil
}

// withoutDirty leaves out names whose object has vanished, or become another kind of file, while their inode holds more than it: they stay.
func (m *merging) withoutDirty(ctx context.Context, names []*rpc.Listed) ([]*rpc.Listed, error) {
	var kept []*rpc.Listed
	for _, n := range names {
		if n.GetDir() || n.GetEtag() != "" && n.GetReplaces() == 0 {
			kept = append(kept, n)
			continue
		}
		row, err := meta.Entry(m.t.cfg.Group.DB(), objcache.Ino(m.dir.GetIno()), n.GetName())
		if err != nil {
			return nil, err
		}
		in, err := m.t.inspect(ctx, row.GetIno())
		if err != nil {
			return nil, err
		}
		if in == nil || !in.GetDirty() && in.GetIntent() == nil && !in.GetOrphan() && in.GetBase().GetEtag() == row.GetEtag() && len(in.GetLinks()) == 1 && len(in.GetTrash()) == 0 {
			kept = append(kept, n)
		}
	}
	return kept, nil
}

// prepare numbers a new name and says what changes at its inode's owner.
func (m *merging) prepare(n *rpc.Listed, now int64) ([]*rpc.Step, error) {
	n.Ino, n.Replaces, n.Attributes, n.Unasked = 0, 0, nil, m.ask.missing[n.GetName()]
	row, err := meta.Entry(m.t.cfg.Group.DB(), objcache.Ino(m.dir.GetIno()), n.GetName())
	if err != nil || !meta.Fresh(row, m.requested) {
		return nil, err
	}
	if row.GetIno() != 0 {
		return m.change(row, n, now)
	}
	if n.GetEtag() == "" && !n.GetDir() {
		return nil, nil
	}
	return m.insert(n, now)
}

// insert makes the inode of a new name.
func (m *merging) insert(n *rpc.Listed, now int64) ([]*rpc.Step, error) {
	g := m.t.cfg.Group
	ino, err := g.AllocateIno(!n.GetDir() && m.dir.GetDir().GetChildren() < 4096)
	if err != nil {
		return nil, err
	}
	n.Ino = uint64(ino)
	in := m.inode(n, now)
	if n.Attributes, err = encode(in); err != nil {
		return nil, err
	}
	if g.Owns(ring.HashInode(ino)) {
		return nil, nil // mergePage makes it
	}
	return []*rpc.Step{{Step: &rpc.Step_PutInode{PutInode: &rpc.PutInode{Inode: n.GetAttributes()}}}}, nil
}

func (m *merging) inode(n *rpc.Listed, now int64) *record.Inode {
	d := m.t.cfg.Defaults
	in := &record.Inode{
		Ino: n.GetIno(), Mode: objcache.ModeRegular | d.FileMode, Nlink: 1, Uid: d.UID, Gid: d.GID, Version: 1, Bucket: m.dir.GetBucket(), DefaultAttrs: true,
		Links: []*record.Link{{Dir: m.dir.GetIno(), Name: n.GetName()}}, Atime: now, Mtime: now, Ctime: now,
	}
	if n.GetDir() {
		in.Mode, in.Nlink = objcache.ModeDir|d.DirMode, 2
		in.Dir = &record.DirState{Prefix: m.prefix + n.GetName() + "/"}
	} else {
		in.Size, in.Mtime, in.Ctime, in.Atime = n.GetSize(), n.GetModified(), n.GetModified(), n.GetModified()
		in.Base = m.base(n)
		in.Base.Version = 1
		in.Links[0].Key, in.Links[0].Etag, in.Links[0].Version = n.GetKey(), n.GetEtag(), 1
	}
	said := m.ask.answers[n.GetName()]
	if said != nil {
		understand(in, said.meta, said.target)
		if in.GetDir() != nil {
			in.Dir.Foreign = m.ask.mode == ForeignAuto && hasOwner(said.meta) && said.meta[metaIno] == ""
		}
	}
	if r := m.tabled(n); r != nil && (in.GetDefaultAttrs() || in.GetCtime() <= r.GetCtime()) {
		decorate(in, r)
	}
	return in
}

func (m *merging) base(n *rpc.Listed) *record.Base {
	return &record.Base{Key: n.GetKey(), Etag: n.GetEtag(), Size: n.GetSize(), Length: n.GetSize(), Dir: m.dir.GetIno(), Name: n.GetName()}
}

// change is what another client did to a clean file's object, and what is learned of it only now.
func (m *merging) change(row *record.DirEntry, n *rpc.Listed, now int64) ([]*rpc.Step, error) {
	isDir := row.GetMode()&objcache.ModeMask == objcache.ModeDir
	said := m.ask.answers[n.GetName()]
	other := row.GetEtag() != n.GetEtag()
	if n.GetDir() || isDir || row.GetEtag() == "" || !other && said == nil {
		return nil, nil
	}
	r := &rpc.RefreshBase{Ino: row.GetIno(), OldEtag: row.GetEtag(), Modified: n.GetModified(), Gone: n.GetEtag() == ""}
	steps := []*rpc.Step{{Step: &rpc.Step_RefreshBase{RefreshBase: r}}}
	if r.GetGone() {
		return steps, nil
	}
	in := m.inode(n, now)
	var err error
	switch {
	case in.GetMode()&objcache.ModeMask != row.GetMode() && (other || said != nil):
		r.Gone, n.Replaces = true, row.GetIno() // another kind of file is another file
		made, err := m.insert(n, now)
		return append(steps, made...), err
	case said != nil && !in.GetDefaultAttrs():
		if r.Attributes, err = encode(in); err != nil {
			return nil, err
		}
	}
	if other {
		r.Base, err = encode(m.base(n))
	}
	return steps, err
}
