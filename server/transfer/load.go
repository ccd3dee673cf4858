package transfer

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/external"
	"github.com/objcache/objcache/server/group"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
	"github.com/objcache/objcache/server/ring"
)

// loads are the listings under way and the directories that need no new look for a while.
type loads struct {
	mu struct {
		sync.Mutex
		running map[objcache.Ino]*load
		skipped map[objcache.Ino]time.Time // not listed again before this time + TTL although not merged
	}
}

// load is one listing of a directory.
type load struct {
	done chan struct{}
	err  error
	mu   struct {
		sync.Mutex
		page chan struct{} // closed when another page is merged
	}
}

// Times a caller is willing to wait for more than it asked for.
const (
	refreshPatience = 2 * time.Second        // of a refresh, before the cached names serve (external storage slow or down)
	directAfter     = 200 * time.Millisecond // of a first listing, before one name is asked for directly
	onePage         = 1000                   // entries up to which a lookup waits for a refresh of the whole directory
)

// Ready returns when the rows of a directory can answer for a name, or for all ("").
func (t *Transfer) Ready(ctx context.Context, dir *record.Inode, name string) error {
	if dir.GetIno() == uint64(objcache.RootIno) || dir.GetDead() {
		return nil
	}
	if dir.GetDir().GetComplete() {
		return t.refreshed(ctx, dir, name)
	}
	l := t.begin(dir)
	if name == "" {
		return l.wait(ctx)
	}
	return t.oneName(ctx, dir, name, l)
}

func (t *Transfer) fresh(dir *record.Inode) bool {
	since := t.now().Add(-t.cfg.ExternalTTL)
	if time.Unix(0, dir.GetDir().GetLoadedAt()).After(since) {
		return true
	}
	t.loads.mu.Lock()
	defer t.loads.mu.Unlock()
	return t.loads.mu.skipped[objcache.Ino(dir.GetIno())].After(since)
}

func (t *Transfer) skip(dir objcache.Ino) {
	t.loads.mu.Lock()
	defer t.loads.mu.Unlock()
	t.loads.mu.skipped[dir] = t.now()
}

// refreshed looks at external storage again when the TTL has passed. What is cached serves when that fails or takes long.
func (t *Transfer) refreshed(ctx context.Context, dir *record.Inode, name string) error {
	if t.fresh(dir) || dir.GetDir().GetMoving() {
		return nil
	}
	l := t.begin(dir)
	if name != "" && dir.GetDir().GetChildren() > onePage {
		return nil
	}
	wait, cancel := context.WithTimeout(ctx, refreshPatience)
	defer cancel()
	if err := l.wait(wait); err != nil {
		if ctx.Err() != nil {
			return objcache.Errorf(objcache.Interrupted, "refresh of directory %d: %w", dir.GetIno(), ctx.Err())
		}
		t.skip(objcache.Ino(dir.GetIno()))
		t.cfg.Logger.Warn("external storage not asked again, cached names serve", "ino", dir.GetIno(), "error", err)
	}
	return nil
}

// Refresh looks at external storage again now.
func (t *Transfer) Refresh(ctx context.Context, dir *record.Inode) error {
	if dir.GetDir().GetMoving() {
		return nil
	}
	return t.begin(dir).wait(ctx)
}

// oneName waits for the first listing to reach a name, or asks for it directly when that takes long.
func (t *Transfer) oneName(ctx context.Context, dir *record.Inode, name string, l *load) error {
	timer := time.NewTimer(directAfter)
	defer timer.Stop()
	for {
		l.mu.Lock()
		page := l.mu.page
		l.mu.Unlock()
		if row, err := meta.Entry(t.cfg.Group.DB(), objcache.Ino(dir.GetIno()), name); err != nil || row != nil {
			return err
		}
		select {
		case <-l.done:
			return l.err
		case <-page:
		case <-timer.C:
			return t.lookDirectly(ctx, dir, name)
		case <-ctx.Done():
			return objcache.Errorf(objcache.KindOf(ctx.Err()), "listing of directory %d: %w", dir.GetIno(), ctx.Err())
		}
	}
}

// lookDirectly asks for one name of a directory whose listing is not there yet.
func (t *Transfer) lookDirectly(ctx context.Context, dir *record.Inode, name string) error {
	store, err := t.store(dir.GetBucket())
	if err != nil {
		return err
	}
	prefix, requested := dir.GetDir().GetPrefix(), t.cfg.Group.Applied()
	var page external.Page
	switch o, err := store.Head(ctx, prefix+name); {
	case err == nil:
		page.Objects = []external.Object{o}
	case objcache.KindOf(err) != objcache.NotExist:
		return err
	}
	below, err := store.List(ctx, external.ListRequest{Prefix: prefix + name + "/", MaxKeys: 1})
	if err != nil {
		return err
	}
	if len(below.Objects) > 0 {
		page = external.Page{Prefixes: []string{prefix + name + "/"}}
	}
	m := &merging{t: t, dir: dir, prefix: prefix, requested: requested, began: t.now()}
	return m.merge(ctx, page)
}

func (l *load) wait(ctx context.Context) error {
	select {
	case <-l.done:
		return l.err
	case <-ctx.Done():
		return objcache.Errorf(objcache.KindOf(ctx.Err()), "listing: %w", ctx.Err())
	}
}

// begin joins the listing of a directory that is under way, or starts one.
func (t *Transfer) begin(dir *record.Inode) *load {
	ino := objcache.Ino(dir.GetIno())
	t.loads.mu.Lock()
	defer t.loads.mu.Unlock()
	if l := t.loads.mu.running[ino]; l != nil {
		return l
	}
	l := &load{done: make(chan struct{})}
	l.mu.page = make(chan struct{})
	t.loads.mu.running[ino] = l
	t.background(func(ctx context.Context) {
		// It outlives whoever asked first: others wait for it too.
		l.err = t.list(ctx, dir, l)
		t.loads.mu.Lock()
		delete(t.loads.mu.running, ino)
		t.loads.mu.Unlock()
		close(l.done)
	})
	return l
}

// list lists a directory and merges page by page.
func (t *Transfer) list(ctx context.Context, dir *record.Inode, l *load) error {
	store, err := t.store(dir.GetBucket())
	if err != nil {
		return err
	}
	prefix := dir.GetDir().GetPrefix()
	if !dir.GetDir().GetMoving() {
		path, blocked, err := t.path(ctx, objcache.Ino(dir.GetIno()))
		if err != nil {
			return err
		}
		if dir.GetDir().GetComplete() && blocked {
			t.skip(objcache.Ino(dir.GetIno())) // what stands there belongs to a directory that had this path before
			return nil
		}
		if prefix = path; prefix != "" {
			prefix += "/"
		}
	}
	end := t.cfg.Group.BeginListing(objcache.Ino(dir.GetIno()))
	defer end()
	m := &merging{t: t, dir: dir, prefix: prefix, requested: t.cfg.Group.Applied(), began: t.now(), whole: true, seen: map[string]bool{}}
	if !dir.GetDir().GetComplete() {
		if m.table, err = t.readTable(ctx, store, prefix); err != nil {
			return err
		}
	}
	for token := ""; ; {
		page, err := store.List(ctx, external.ListRequest{Prefix: prefix, Delimiter: "/", Token: token})
		if err != nil {
			return err
		}
		m.last = page.Next == ""
		if err := m.merge(ctx, page); err != nil {
			return err
		}
		l.mu.Lock()
		close(l.mu.page)
		l.mu.page = make(chan struct{})
		l.mu.Unlock()
		if token = page.Next; token == "" {
			return nil
		}
	}
}

// path is where a directory stands in its bucket, and whether a part of it is still owed by a directory that was there before.
func (t *Transfer) path(ctx context.Context, ino objcache.Ino) (string, bool, error) {
	r, err := t.cfg.Peers.Call(ctx, ring.HashInode(ino), &rpc.Request{Op: &rpc.Request_Path{Path: &rpc.PathRequest{Ino: uint64(ino)}}})
	if err != nil {
		return "", false, err
	}
	return r.GetPath().GetPath(), len(r.GetPath().GetBlockedBy()) > 0, nil
}

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
		if in == nil || !in.GetDirty() && in.GetIntent() == nil && !in.GetOrphan() && in.GetBase().GetEtag() == row.GetEtag() && len(in.GetLinks()) == 1 {
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
