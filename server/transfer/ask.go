package transfer

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/external"
	"github.com/objcache/objcache/server/meta"
)

// Which objects of a listing are asked for their user metadata: docs/decisions/0009.

// Foreign says when objects that others wrote are asked for their user metadata.
type Foreign string

// ForeignAuto asks where there is reason to expect attributes, ForeignAlways everywhere, ForeignNever nowhere.
const (
	ForeignAuto   Foreign = ""
	ForeignAlways Foreign = "always"
	ForeignNever  Foreign = "never"
)

const (
	headsAtOnce = 32 // of one group
	sampleSize  = 3  // objects of a listing
)

// answer is what the user metadata of an object says.
type answer struct {
	meta   map[string]string
	target string // of a symlink
}

// asking is what one listing knows of the user metadata of its objects.
type asking struct {
	mode    Foreign
	expect  bool    // every object is asked
	foreign bool    // because others here say who owns them: so will those that come later
	sample  bool    // some are, to see whether the others are worth it
	failed  bool    // external storage did not answer: the rest is asked another time
	marker  int64   // when the directory's own object was modified, ns; 0: not seen, 1: not asked as it should be
	self    *answer // of the directory's own object
	answers map[string]*answer
	missing map[string]bool // expected, and could not be read
}

// notePage notes what a page shows of the directory's own object, and decides whether others are asked.
func (m *merging) notePage(ctx context.Context, page external.Page) {
	a := &m.ask
	for _, o := range page.Objects {
		if o.Key == m.prefix && o.Key != "" {
			a.marker = o.Modified.UnixNano()
		}
	}
	if m.decided || a.mode == ForeignNever {
		return
	}
	m.decided = true
	d := m.dir.GetDir()
	a.expect = a.mode == ForeignAlways || d.GetForeign()
	// Whatever is new in a directory that was listed before has just been written; a table says that somebody cared for attributes.
	a.sample = m.prefix == "" || d.GetComplete() || m.table != nil || a.marker != 0 && !m.dir.GetDefaultAttrs()
	if a.marker == 0 || !rewritten(d.GetMarkerModified(), a.marker) || !d.GetComplete() && !m.dir.GetDefaultAttrs() && d.GetMarkerModified() == 0 {
		return
	}
	self, err := m.askOne(ctx, &rpc.Listed{Key: m.prefix, Dir: true})
	if err != nil {
		m.fail(m.prefix, err)
		a.expect, a.marker = true, 1
		return
	}
	a.self = self
	if hasOwner(self.meta) {
		// s3fs says everything in every object. Ours has a table for what we wrote here, and the others may be anybody's.
		a.foreign = self.meta[metaIno] == ""
		a.expect, a.sample = a.expect || a.foreign, true
	}
}

func (m *merging) fail(key string, err error) {
	if !m.ask.failed {
		m.t.cfg.Logger.Warn("attributes in user metadata not read, defaults serve", "key", key, "error", err)
	}
	m.ask.failed = true
}

// askFor asks for the user metadata of those names of a page whose attributes nothing else tells.
func (m *merging) askFor(ctx context.Context, names []*rpc.Listed) error {
	a := &m.ask
	if !a.expect && !a.sample {
		return nil
	}
	var open []*rpc.Listed
	for _, n := range names {
		if known, err := m.known(n); err != nil {
			return err
		} else if !known {
			open = append(open, n)
		}
	}
	if len(open) == 0 {
		return nil
	}
	if !a.expect {
		a.sample = false
		some := []*rpc.Listed{open[0], open[len(open)/2], open[len(open)-1]}
		m.askAll(ctx, some[:min(len(open), sampleSize)])
		for _, s := range a.answers {
			a.foreign = a.foreign || hasOwner(s.meta)
		}
		a.expect = a.foreign
	}
	if a.expect {
		m.askAll(ctx, open)
	}
	return ctx.Err()
}

// known reports whether nothing need be asked for a name: its row or the table is about this very object, or the listing may not speak about it.
func (m *merging) known(n *rpc.Listed) (bool, error) {
	row, err := meta.Entry(m.t.cfg.Group.DB(), objcache.Ino(m.dir.GetIno()), n.GetName())
	switch {
	case err != nil:
		return false, err
	case !meta.Fresh(row, m.requested):
		return true, nil
	case row.GetIno() == 0:
		r := m.tabled(n)
		return r != nil && (n.GetDir() || !rewritten(r.GetModified(), n.GetModified())), nil
	case n.GetDir() || row.GetEtag() == "":
		return true, nil
	}
	return row.GetEtag() == n.GetEtag() && !row.GetUnasked() && !rewritten(row.GetModified(), n.GetModified()), nil
}

// clocks is by how much our clock and that of external storage may differ.
const clocks = 5 * time.Second

// rewritten reports whether an object was written again since it was last modified as noted (DirEntry.modified), perhaps with the same bytes, as s3fs
// does for a chmod. Listings tell seconds. What we wrote ourselves and have not listed yet is judged by our clock.
func rewritten(noted, listed int64) bool {
	if noted < 0 {
		return listed > -noted+int64(clocks)
	}
	return noted/1e9 != listed/1e9
}

// askAll asks for several names at once. After the first failure the rest is not asked.
func (m *merging) askAll(ctx context.Context, names []*rpc.Listed) {
	a := &m.ask
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, n := range names {
		mu.Lock()
		_, done := a.answers[n.GetName()]
		if !done && a.failed && !n.GetDir() {
			a.missing[n.GetName()] = true
		}
		skip := done || a.failed
		mu.Unlock()
		if skip {
			continue
		}
		select {
		case m.t.heads <- struct{}{}:
		case <-ctx.Done():
			wg.Wait()
			return
		}
		wg.Go(func() {
			defer func() { <-m.t.heads }()
			said, err := m.askOne(ctx, n)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				m.fail(n.GetKey(), err)
			}
			if said != nil {
				a.answers[n.GetName()] = said
			} else if !n.GetDir() {
				a.missing[n.GetName()] = true
			}
		})
	}
	wg.Wait()
}

// askOne reads the user metadata of one object, and a symlink's target. nil: the object is another by now. One that may not be read says nothing.
func (m *merging) askOne(ctx context.Context, n *rpc.Listed) (*answer, error) {
	store, err := m.t.store(m.dir.GetBucket())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, max(m.t.cfg.ExternalTTL, time.Second))
	defer cancel()
	o, err := store.Head(ctx, n.GetKey())
	switch {
	case err != nil && n.GetDir() && objcache.KindOf(err) == objcache.NotExist, err != nil && objcache.KindOf(err) == objcache.Permission:
		return &answer{}, nil
	case err != nil && objcache.KindOf(err) == objcache.NotExist, err == nil && !n.GetDir() && o.ETag != n.GetEtag():
		return nil, nil
	case err != nil:
		return nil, err
	}
	return m.t.answerOf(ctx, store, o)
}

// answerOf is what an object says whose metadata is known.
func (t *Transfer) answerOf(ctx context.Context, store external.Store, o external.Object) (*answer, error) {
	said := &answer{meta: o.Meta}
	if strings.HasSuffix(o.Key, "/") || !saysSymlink(o.Meta, o.Size) {
		return said, nil
	}
	body, _, err := store.Get(ctx, o.Key, 0, -1, o.ETag)
	switch objcache.KindOf(err) {
	case objcache.Precondition, objcache.NotExist:
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(body)
	if err := errors.Join(err, body.Close()); err != nil {
		return nil, objcache.Errorf(objcache.Unavailable, "target of symlink %q: %w", o.Key, err)
	}
	if !strings.ContainsRune(string(b), 0) {
		said.target = string(b)
	}
	return said, nil
}
