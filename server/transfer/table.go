package transfer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"

	"google.golang.org/protobuf/proto"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/failpoint"
	"github.com/objcache/objcache/server/external"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
	"github.com/objcache/objcache/server/ring"
)

// tableKey is the key of a directory's table: the hidden prefix and a hash of the directory's own prefix, which may be too long for a key of its own.
func (t *Transfer) tableKey(prefix string) string {
	h := sha256.Sum256([]byte(prefix))
	return t.cfg.Prefix + "dirs/" + hex.EncodeToString(h[:20])
}

// readTable reads a directory's table; nil when there is none, or none that can be read: then listings and defaults have the word.
func (t *Transfer) readTable(ctx context.Context, store external.Store, prefix string) (map[string]*record.TableRow, error) {
	if t.cfg.Prefix == "" {
		return nil, nil
	}
	body, _, err := store.Get(ctx, t.tableKey(prefix), 0, -1, "")
	switch objcache.KindOf(err) {
	case objcache.NotExist:
		return nil, nil
	case objcache.Permission:
		t.cfg.Logger.Warn("directory table not readable, defaults serve", "prefix", prefix, "error", err)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(body)
	if err := errors.Join(err, body.Close()); err != nil {
		return nil, objcache.Errorf(objcache.Unavailable, "directory table of %q: %w", prefix, err)
	}
	table := &record.DirTable{}
	if err := proto.Unmarshal(b, table); err != nil || table.GetPrefix() != prefix {
		t.cfg.Logger.Warn("directory table is damaged, defaults serve", "prefix", prefix, "error", err)
		return nil, nil
	}
	rows := make(map[string]*record.TableRow, len(table.GetRows()))
	for _, r := range table.GetRows() {
		rows[r.GetName()] = r
	}
	return rows, nil
}

// tabled is the row of the table about a listed object; nil when there is none.
func (m *merging) tabled(n *rpc.Listed) *record.TableRow {
	r := m.table[n.GetName()]
	isDir := r.GetMode()&objcache.ModeMask == objcache.ModeDir
	if r == nil || isDir != n.GetDir() || !isDir && r.GetEtag() != n.GetEtag() {
		return nil
	}
	return r
}

// decorate gives a new inode the attributes of its row in the table.
func decorate(in *record.Inode, r *record.TableRow) {
	in.Mode, in.Uid, in.Gid, in.Rdev, in.Target, in.Xattrs = r.GetMode(), r.GetUid(), r.GetGid(), r.GetRdev(), r.GetTarget(), r.GetXattrs()
	in.Atime, in.Mtime, in.Ctime, in.DefaultAttrs = r.GetAtime(), r.GetMtime(), r.GetCtime(), false
	if in.GetDir() != nil {
		in.Dir.MarkerModified = r.GetModified()
	}
}

func attributesGone(in *record.Inode) *rpc.Step {
	return &rpc.Step{Step: &rpc.Step_EndPersist{EndPersist: &rpc.EndPersist{Ino: in.GetIno(), Attributes: true, AsOf: in.GetCtime()}}}
}

// settleAttributes hands an inode's attributes over to the tables of the directories that name it: no byte is uploaded again.
func (t *Transfer) settleAttributes(ctx context.Context, in *record.Inode) error {
	steps := []*rpc.Step{attributesGone(in)}
	for _, l := range in.GetLinks() {
		steps = append(steps, settledAbove(in.GetIno(), l))
	}
	return t.transact(ctx, steps...)
}

// settledAbove has the directory of a name write its table again.
func settledAbove(ino uint64, l *record.Link) *rpc.Step {
	return &rpc.Step{Step: &rpc.Step_SettleEntry{SettleEntry: &rpc.SettleEntry{Dir: l.GetDir(), Name: l.GetName(), Ino: ino, Attributes: true}}}
}

// writeTable writes the attributes of a directory's entries that a listing would not tell.
func (t *Transfer) writeTable(ctx context.Context, in *record.Inode, prefix string) error {
	now, err := meta.Inode(t.cfg.Group.DB(), objcache.Ino(in.GetIno()))
	if err != nil || now == nil || now.GetDir().GetTableChanges() == now.GetDir().GetTableWritten() {
		return err
	}
	if t.cfg.Prefix != "" {
		failpoint.Hit(failpoint.TableBefore)
		if err := t.putTable(ctx, now, prefix); err != nil {
			return err
		}
		failpoint.Hit(failpoint.TableAfter)
	}
	return t.transact(ctx, &rpc.Step{Step: &rpc.Step_EndPersist{EndPersist: &rpc.EndPersist{Ino: in.GetIno(), Table: now.GetDir().GetTableChanges()}}})
}

func (t *Transfer) putTable(ctx context.Context, dir *record.Inode, prefix string) error {
	table := &record.DirTable{Prefix: prefix}
	type named struct {
		name string
		row  *record.DirEntry
	}
	var live []named
	err := meta.ScanEntries(t.cfg.Group.DB(), objcache.Ino(dir.GetIno()), "", func(name string, row *record.DirEntry) (bool, error) {
		if row.GetIno() != 0 {
			live = append(live, named{name, row})
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	for _, e := range live {
		r, err := t.tableRow(ctx, e.name, e.row)
		if err != nil {
			return err
		}
		if r != nil {
			table.Rows = append(table.Rows, r)
		}
	}
	store, err := t.store(dir.GetBucket())
	if err != nil {
		return err
	}
	if len(table.GetRows()) == 0 {
		return store.Delete(ctx, t.tableKey(prefix))
	}
	b, err := encode(table)
	if err != nil {
		return err
	}
	_, err = store.Put(ctx, t.tableKey(prefix), bytes.NewReader(b), nil, external.Condition{})
	return err
}

// tableRow is what the table says of one entry; nil when a listing says it all.
func (t *Transfer) tableRow(ctx context.Context, name string, row *record.DirEntry) (*record.TableRow, error) {
	r, err := t.cfg.Peers.Call(ctx, ring.HashInode(objcache.Ino(row.GetIno())), &rpc.Request{
		Op: &rpc.Request_Inspect{Inspect: &rpc.InspectRequest{Ino: row.GetIno()}},
	})
	if k := objcache.KindOf(err); err != nil && (k == objcache.Stale || k == objcache.NotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	in, err := meta.DecodeInode(r.GetInspect().GetInode())
	if err != nil || in.GetDefaultAttrs() || in.GetDir() == nil && row.GetEtag() == "" {
		return nil, err
	}
	modified := row.GetModified()
	if d := in.GetDir(); d != nil {
		modified = d.GetMarkerModified()
	}
	return &record.TableRow{
		Name: name, Etag: row.GetEtag(), Mode: in.GetMode(), Uid: in.GetUid(), Gid: in.GetGid(), Rdev: in.GetRdev(), Target: in.GetTarget(), Xattrs: in.GetXattrs(),
		Atime: in.GetAtime(), Mtime: in.GetMtime(), Ctime: in.GetCtime(), Modified: modified,
	}, nil
}
