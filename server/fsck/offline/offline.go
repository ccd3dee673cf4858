// Package offline checks the state directories of servers that do not run: log, rows, and the files with the bytes. It promises not to change them: the log
// is replayed into a copy of the rows beside the directory. It does not know what is right or wrong with rows (fsck).
package offline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/fsck"
	"github.com/objcache/objcache/server/ring"
)

// Options say how to look.
type Options struct {
	// Verify reads every byte of extents that external storage does not have. Without it only names and lengths of files are looked at.
	Verify bool
}

// identity is what fsck needs of a state directory's identity.json (docs/on-disk.md).
type identity struct {
	Name    string   `json:"name"`
	Cluster string   `json:"cluster"`
	Epoch   uint64   `json:"epoch"`
	Group   uint32   `json:"group"`
	Members []member `json:"members"`
}

type member struct {
	Group   uint32 `json:"group"`
	Name    string `json:"name"`
	Address string `json:"address"`
}

// state is one state directory, locked.
type state struct {
	dir  string
	id   identity
	lock *os.File
}

// Check looks at the state directories of a cluster's servers, none of which may run meanwhile. What depends on a server whose directory is not among them is
// not judged. The error says that a directory could not be looked at: it is none, a server runs on it, or files cannot be read.
func Check(ctx context.Context, dirs []string, o Options) (found []fsck.Finding, err error) {
	var all []*state
	defer func() {
		for _, s := range all {
			err = errors.Join(err, s.lock.Close())
		}
	}()
	for _, d := range dirs {
		s, err := open(d)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	in := fsck.Cluster{}
	if in.View, err = view(all); err != nil {
		return nil, err
	}
	for _, s := range all {
		g, damaged, err := s.read(ctx, o)
		if err != nil {
			return nil, fmt.Errorf("state directory %s: %w", s.dir, err)
		}
		if damaged {
			found = append(found, fsck.OfDisk(g.ID, g.Disk)...)
			continue
		}
		in.Groups = append(in.Groups, g)
	}
	r, err := fsck.Inspect(in)
	return append(found, r.Findings...), err
}

// open takes a state directory that a server has used.
func open(dir string) (*state, error) {
	b, err := os.ReadFile(filepath.Join(dir, "identity.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, objcache.Errorf(objcache.NotExist, "%s is no state directory of a server: identity.json is missing", dir)
	}
	if err != nil {
		return nil, err
	}
	s := &state{dir: dir}
	if err := json.Unmarshal(b, &s.id); err != nil {
		return nil, objcache.Errorf(objcache.Corrupt, "%s: %w", filepath.Join(dir, "identity.json"), err)
	}
	if s.lock, err = os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR, 0); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	if err := unix.Flock(int(s.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(objcache.Errorf(objcache.Invalid, "%s is in use: its server runs. Stop it, or check the running cluster with --servers", dir), s.lock.Close())
	}
	return s, nil
}

// view is that of the cluster the directories belong to.
func view(all []*state) (*ring.View, error) {
	known := map[uint32]member{}
	for _, s := range all {
		if s.id.Cluster != all[0].id.Cluster || s.id.Epoch != all[0].id.Epoch {
			return nil, objcache.Errorf(objcache.Invalid, "%s belongs to cluster %q of epoch %d, %s to %q of %d", all[0].dir, all[0].id.Cluster, all[0].id.Epoch,
				s.dir, s.id.Cluster, s.id.Epoch)
		}
		for _, m := range append(s.id.Members, member{Group: s.id.Group, Name: s.id.Name}) {
			if old := known[m.Group]; old.Address == "" {
				known[m.Group] = m
			}
		}
	}
	var ms []ring.Member
	for g, m := range known {
		ms = append(ms, ring.Member{Group: objcache.GroupID(g), Name: m.Name, Address: m.Address, Weight: 1})
	}
	if len(ms) == 0 {
		return nil, objcache.Errorf(objcache.Invalid, "no state directories")
	}
	return ring.New(objcache.ViewVersion{Epoch: all[0].id.Epoch, Version: 1}, ms)
}
