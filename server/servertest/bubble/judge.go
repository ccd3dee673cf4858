package bubble

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/external"
	"github.com/objcache/objcache/server/fsck"
	"github.com/objcache/objcache/server/ring"
)

// judge checks the rows that stopped servers have left, when everything had come to rest before.
func (r *run) judge() error {
	found, err := r.c.check(r.bucket)
	if err != nil {
		return err
	}
	found = slices.DeleteFunc(found, func(f fsck.Finding) bool {
		r.log.note("fsck: %+v", f)
		return f.Code == "chunk-row-left" // a row of a few bytes for each chunk that a file had before it was truncated and removed
	})
	if len(found) > 0 {
		return fmt.Errorf("fsck has %d findings, the first: %+v", len(found), found[0])
	}
	return nil
}

func (c *cluster) check(bucket external.Reader) (found []fsck.Finding, err error) {
	in := fsck.Cluster{Quiet: true, Hidden: c.nodes[0].conf.MetadataPrefix}
	var members []ring.Member
	for i, m := range c.nodes[0].conf.Members {
		members = append(members, ring.Member{Group: objcache.GroupID(m.Group), Name: m.Name, Address: m.Address, Weight: 1})
		db, err := openRows(c.nodes[i].disk(), fmt.Sprintf("%s/group-%d/rows", stateDir, m.Group))
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, db.Close()) }()
		in.Groups = append(in.Groups, fsck.Group{ID: objcache.GroupID(m.Group), Rows: db})
	}
	if in.View, err = ring.New(objcache.ViewVersion{Epoch: c.epoch, Version: 1}, members); err != nil {
		return nil, err
	}
	objects, err := listAll(bucket)
	if err != nil {
		return nil, err
	}
	in.Objects = map[string]map[string]external.Object{bucketDir: objects}
	return fsck.Check(in)
}

func openRows(mem *vfs.MemFS, dir string) (*pebble.DB, error) {
	return pebble.Open(dir, &pebble.Options{FS: mem, ReadOnly: true, Logger: silent{}})
}

type silent struct{}

func (silent) Infof(string, ...any)           {}
func (silent) Errorf(string, ...any)          {}
func (silent) Fatalf(format string, a ...any) { panic(fmt.Sprintf(format, a...)) }

func listAll(bucket external.Reader) (map[string]external.Object, error) {
	out := map[string]external.Object{}
	for r := (external.ListRequest{}); ; {
		p, err := bucket.List(context.Background(), r)
		if err != nil {
			return nil, err
		}
		for _, o := range p.Objects {
			out[o.Key] = o
		}
		if r.Token = p.Next; r.Token == "" {
			return out, nil
		}
	}
}

func (n *node) disk() *vfs.MemFS {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.disk.mem
}
