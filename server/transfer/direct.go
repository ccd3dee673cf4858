package transfer

import (
	"context"
	"sync"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/external"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
)

// directs are the questions about single names: those under way, and when names were asked for last.
type directs struct {
	mu struct {
		sync.Mutex
		running map[nameKey]*load
		asked   map[nameKey]time.Time
	}
}

type nameKey struct {
	dir  objcache.Ino
	name string
}

// maxAsked is how many names are remembered before all are forgotten.
const maxAsked = 1 << 16

func (d *directs) init() {
	d.mu.running, d.mu.asked = map[nameKey]*load{}, map[nameKey]time.Time{}
}

// direct asks for one name of a directory, unless that was done within the TTL. All who want to know it wait for one question.
func (t *Transfer) direct(ctx context.Context, dir *record.Inode, name string) error {
	k := nameKey{objcache.Ino(dir.GetIno()), name}
	d := &t.directs
	d.mu.Lock()
	if t.now().Sub(d.mu.asked[k]) < t.cfg.ExternalTTL {
		d.mu.Unlock()
		return nil
	}
	l := d.mu.running[k]
	if l == nil {
		l = &load{done: make(chan struct{})}
		d.mu.running[k] = l
		began := t.now()
		t.background(func(ctx context.Context) {
			l.err = t.lookDirectly(ctx, dir, name)
			d.mu.Lock()
			delete(d.mu.running, k)
			if l.err == nil {
				if len(d.mu.asked) >= maxAsked {
					clear(d.mu.asked)
				}
				d.mu.asked[k] = began
			}
			d.mu.Unlock()
			close(l.done)
		})
	}
	d.mu.Unlock()
	return l.wait(ctx)
}

// unknown reports whether a name of a directory has no row, or one whose attributes are still to be read.
func (t *Transfer) unknown(dir *record.Inode, name string) (bool, error) {
	row, err := meta.Entry(t.cfg.Group.DB(), objcache.Ino(dir.GetIno()), name)
	return row == nil || row.GetUnasked(), err
}

// lookDirectly asks for one name of a directory whose listing is not there yet.
func (t *Transfer) lookDirectly(ctx context.Context, dir *record.Inode, name string) error {
	store, err := t.store(dir.GetBucket())
	if err != nil {
		return err
	}
	m, err := t.merging(ctx, objcache.Ino(dir.GetIno()))
	if err != nil || m == nil {
		return err
	}
	dir, prefix := m.dir, m.prefix
	if !dir.GetDir().GetComplete() {
		if m.table, err = t.readTable(ctx, store, prefix); err != nil {
			return err
		}
	}
	var page external.Page
	switch o, err := store.Head(ctx, prefix+name); {
	case err == nil:
		page.Objects = []external.Object{o}
		if err := m.learn(ctx, store, name, o); err != nil {
			return err
		}
	case objcache.KindOf(err) != objcache.NotExist:
		return err
	}
	below, err := store.List(ctx, external.ListRequest{Prefix: prefix + name + "/", MaxKeys: 1})
	if err != nil {
		return err
	}
	if len(below.Objects) > 0 {
		page = external.Page{Prefixes: []string{prefix + name + "/"}}
		delete(m.ask.answers, name) // the file of that name is not shown
	}
	return m.merge(ctx, page)
}

// learn takes over what a question about a name told of its object besides.
func (m *merging) learn(ctx context.Context, store external.Store, name string, o external.Object) error {
	if m.ask.mode == ForeignNever {
		return nil
	}
	said, err := m.t.answerOf(ctx, store, o)
	if said != nil {
		m.ask.answers[name] = said
	}
	return err
}
