package transfer

import (
	"context"
	"sync"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/external"
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
	look := t.begin(dir).wait
	if name != "" && dir.GetDir().GetChildren() > onePage {
		// The listing goes on behind the back of lookups; a name that nothing is known of is asked for.
		if unknown, err := t.unknown(dir, name); err != nil || !unknown {
			return err
		}
		look = func(ctx context.Context) error { return t.direct(ctx, dir, name) }
	}
	wait, cancel := context.WithTimeout(ctx, refreshPatience)
	defer cancel()
	if err := look(wait); err != nil {
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
			return t.direct(ctx, dir, name)
		case <-ctx.Done():
			return objcache.Errorf(objcache.KindOf(ctx.Err()), "listing of directory %d: %w", dir.GetIno(), ctx.Err())
		}
	}
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
	end := t.cfg.Group.BeginListing(objcache.Ino(dir.GetIno()))
	defer end()
	m, err := t.merging(ctx, objcache.Ino(dir.GetIno()))
	if err != nil {
		return err
	}
	if m == nil {
		t.skip(objcache.Ino(dir.GetIno()))
		return nil
	}
	dir, prefix := m.dir, m.prefix
	m.whole, m.seen = true, map[string]bool{}
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
			return m.vanishDirs(ctx)
		}
	}
}

// standsThere reports whether what stands in external storage under a directory's prefix is its own. Once it is loaded that may be another's, of a
// directory that had this path before; or it is on its way from there, as a directory above it was renamed, or it itself.
func (t *Transfer) standsThere(ctx context.Context, dir *record.Inode) (bool, error) {
	if !dir.GetDir().GetComplete() {
		return true, nil
	}
	if dir.GetDir().GetMoving() {
		return false, nil
	}
	path, blocked, err := t.path(ctx, objcache.Ino(dir.GetIno()))
	if path != "" {
		path += "/"
	}
	return !blocked && path == dir.GetDir().GetPrefix(), err
}

// path is where a directory stands in its bucket, and whether a part of it is still owed by a directory that was there before.
func (t *Transfer) path(ctx context.Context, ino objcache.Ino) (string, bool, error) {
	r, err := t.cfg.Peers.Call(ctx, ring.HashInode(ino), &rpc.Request{Op: &rpc.Request_Path{Path: &rpc.PathRequest{Ino: uint64(ino)}}})
	if err != nil {
		return "", false, err
	}
	return r.GetPath().GetPath(), len(r.GetPath().GetBlockedBy()) > 0, nil
}
