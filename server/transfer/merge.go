package transfer

import (
	"context"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
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
}

// batch is how many names go into one log entry.
const batch = 100

func (m *merging) merge(ctx context.Context, page external.Page) error {
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
	return m.transact(ctx, names, m.whole && m.last)
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
	steps = append(steps, &rpc.Step{Step: &rpc.Step_MergePage{MergePage: &rpc.MergePage{
		Dir: m.dir.GetIno(), RequestedAt: m.requested, Complete: complete, Began: now, Entries: names,
	}}})
	_, err := m.t.cfg.Group.Transact(ctx, group.Tx{Header: &rpc.Header{Start: now}, Steps: steps})
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

// withoutDirty leaves out names whose object has vanished while their inode holds more than it: they stay.
func (m *merging) withoutDirty(ctx context.Context, names []*rpc.Listed) ([]*rpc.Listed, error) {
	var kept []*rpc.Listed
	for _, n := range names {
		if n.GetEtag() != "" || n.GetDir() {
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
	row, err := meta.Entry(m.t.cfg.Group.DB(), objcache.Ino(m.dir.GetIno()), n.GetName())
	if err != nil || !meta.Fresh(row, m.requested) {
		return nil, err
	}
	if row.GetIno() != 0 {
		return m.change(row, n)
	}
	if n.GetEtag() == "" && !n.GetDir() {
		return nil, nil
	}
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
		m.decorate(in, n)
		return in
	}
	in.Size, in.Mtime, in.Ctime, in.Atime = n.GetSize(), n.GetModified(), n.GetModified(), n.GetModified()
	in.Base = &record.Base{Key: n.GetKey(), Etag: n.GetEtag(), Size: n.GetSize(), Length: n.GetSize(), Dir: m.dir.GetIno(), Name: n.GetName(), Version: 1}
	in.Links[0].Key, in.Links[0].Etag, in.Links[0].Version = n.GetKey(), n.GetEtag(), 1
	m.decorate(in, n)
	return in
}

// change is what another client did to a clean file's object.
func (m *merging) change(row *record.DirEntry, n *rpc.Listed) ([]*rpc.Step, error) {
	isDir := row.GetMode()&objcache.ModeMask == objcache.ModeDir
	if n.GetDir() || isDir || row.GetEtag() == "" || row.GetEtag() == n.GetEtag() {
		return nil, nil
	}
	base, err := encode(&record.Base{
		Key: n.GetKey(), Etag: n.GetEtag(), Size: n.GetSize(), Length: n.GetSize(), Dir: m.dir.GetIno(), Name: n.GetName(),
	})
	if err != nil {
		return nil, err
	}
	return []*rpc.Step{{Step: &rpc.Step_RefreshBase{RefreshBase: &rpc.RefreshBase{
		Ino: row.GetIno(), OldEtag: row.GetEtag(), Base: base, Modified: n.GetModified(), Gone: n.GetEtag() == "",
	}}}}, nil
}
