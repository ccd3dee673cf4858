package transfer

import (
	"context"
	"sync"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
	"github.com/objcache/objcache/server/ring"
)

// vanishAtOnce is how many directories that a listing did not show are looked at together.
const vanishAtOnce = 8

// vanishDirs ends the directories that the whole listing did not show. One that cannot be judged now stays until the next listing.
func (m *merging) vanishDirs(ctx context.Context) error {
	gone := map[string]uint64{}
	err := meta.ScanEntries(m.t.cfg.Group.DB(), objcache.Ino(m.dir.GetIno()), "", func(name string, row *record.DirEntry) (bool, error) {
		if row.GetMode()&objcache.ModeMask == objcache.ModeDir && row.GetIno() != 0 && !m.seen[name] && meta.Fresh(row, m.requested) {
			gone[name] = row.GetIno()
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	room := make(chan struct{}, vanishAtOnce)
	var wg sync.WaitGroup
	defer wg.Wait()
	for name, ino := range gone {
		select {
		case room <- struct{}{}:
		case <-ctx.Done():
			return objcache.Errorf(objcache.KindOf(ctx.Err()), "%w", ctx.Err())
		}
		wg.Go(func() {
			defer func() { <-room }()
			if err := m.vanishDir(ctx, name, ino); err != nil && objcache.KindOf(err) != objcache.Conflict {
				m.t.cfg.Logger.Warn("directory without objects stays for now", "ino", ino, "error", err)
			}
		})
	}
	return nil
}

// vanishDir ends one of them if nothing in the cluster says otherwise. What was below it goes first, by its own listing.
func (m *merging) vanishDir(ctx context.Context, name string, ino uint64) error {
	before, err := m.t.inspect(ctx, ino)
	key := m.prefix + name + "/"
	if err != nil || before == nil || meta.Owes(before) || before.GetDir().GetPrefix() != key {
		return err
	}
	_, err = m.t.cfg.Peers.Call(ctx, ring.HashInode(objcache.Ino(ino)), &rpc.Request{Op: &rpc.Request_Refresh{Refresh: &rpc.RefreshRequest{Ino: ino}}})
	if err != nil {
		return err
	}
	now, err := m.t.inspect(ctx, ino)
	d := now.GetDir()
	if err != nil || now == nil || d.GetLoadedAt() == before.GetDir().GetLoadedAt() || d.GetChildren() > 0 || d.GetMarker() || meta.Owes(now) {
		return err
	}
	err = m.t.transact(ctx,
		&rpc.Step{Step: &rpc.Step_RemoveEntry{RemoveEntry: &rpc.RemoveEntry{Dir: m.dir.GetIno(), Name: name, Expect: ino, Now: m.began.UnixNano()}}},
		&rpc.Step{Step: &rpc.Step_VanishDir{VanishDir: &rpc.VanishDir{Ino: ino, Dir: m.dir.GetIno(), Name: name, LoadedAt: d.GetLoadedAt()}}},
	)
	if err != nil || m.t.cfg.Prefix == "" {
		return err
	}
	store, err := m.t.store(m.dir.GetBucket())
	if err != nil {
		return err
	}
	if err := store.Delete(ctx, m.t.tableKey(key)); err != nil {
		m.t.cfg.Logger.Info("table of a directory that is gone stays", "prefix", key, "error", err)
	}
	return nil
}
