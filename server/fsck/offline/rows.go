package offline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/protobuf/proto"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/chunk"
	"github.com/objcache/objcache/server/fsck"
	"github.com/objcache/objcache/server/group"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
	"github.com/objcache/objcache/server/replica"
)

// row is a row in memory.
type row struct{ key, value []byte }

// read brings the rows up to the end of the log, and looks at the files. damaged: rows or log cannot be read, so only what the disk says counts.
func (s *state) read(ctx context.Context, o Options) (g fsck.Group, damaged bool, err error) {
	g.ID = objcache.GroupID(s.id.Group)
	dir := filepath.Join(s.dir, fmt.Sprintf("group-%d", s.id.Group))
	rows, err := s.rows(ctx, dir, &g.Disk)
	if err != nil || len(g.Disk.Damages) > 0 {
		return g, true, err
	}
	in, err := chunk.Inspect(nil, filepath.Join(dir, "chunks"), places(rows), o.Verify)
	if err != nil {
		return g, false, err
	}
	g.Disk.Rotten = in.Rotten
	g.Disk.Damages = append(g.Disk.Damages, in.Damages...)
	for _, u := range in.Unnamed {
		g.Disk.Strays = append(g.Disk.Strays, fsck.Stray{File: u.Name, Bytes: u.Bytes, Foreign: u.Foreign})
	}
	g.Each = func(f func(k, v []byte) error) error {
		for _, r := range rows {
			if err := f(r.key, r.value); err != nil {
				return err
			}
		}
		return nil
	}
	return g, false, ctx.Err()
}

// rows reads all rows, from a copy into which the log was replayed. What is wrong with log and rows goes to the disk's damages.
func (s *state) rows(ctx context.Context, dir string, disk *fsck.Disk) (out []row, err error) {
	tmp, err := os.MkdirTemp(filepath.Dir(filepath.Clean(s.dir)), ".objcache-fsck-")
	if err != nil { // the directory beside may not be ours to write in
		tmp, err = os.MkdirTemp("", "objcache-fsck-")
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	if err := copyRows(ctx, filepath.Join(dir, "rows"), tmp); err != nil {
		return nil, err
	}
	bad := func(err error) {
		disk.Damages = append(disk.Damages, fmt.Sprintf("rows in %s: %v", filepath.Join(dir, "rows"), err))
	}
	db, err := pebble.Open(tmp, &pebble.Options{DisableWAL: true, MemTableSize: 16 << 20, Logger: quiet{}})
	if err != nil {
		bad(err)
		return nil, nil
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	r, err := group.NewReplayer(objcache.GroupID(s.id.Group), db, slog.New(slog.DiscardHandler))
	if err != nil {
		bad(err)
		return nil, nil
	}
	if err := replay(filepath.Join(dir, "log"), r, disk); err != nil || len(disk.Damages) > 0 {
		return nil, err
	}
	err = fsck.Each(db, func(k, v []byte) error {
		out = append(out, row{append([]byte{}, k...), append([]byte{}, v...)})
		return nil
	})
	if err != nil {
		bad(err)
	}
	return out, nil
}

// replay applies what the log holds behind the rows, and compares how far both reach.
func replay(dir string, r *group.Replayer, disk *fsck.Disk) error {
	began := r.Applied()
	in, err := replica.Inspect(vfs.Default, dir, began, r.Apply)
	if err != nil {
		return err
	}
	disk.Damages = append(disk.Damages, in.Damages...)
	for _, f := range in.Strays {
		disk.Strays = append(disk.Strays, fsck.Stray{File: filepath.Join(dir, f)})
	}
	switch {
	case len(in.Damages) > 0:
	case began < in.Durable:
		disk.Damages = append(disk.Damages, fmt.Sprintf("%s: the rows were durable up to entry %d and now end at %d", dir, in.Durable, began))
	case began > max(in.Last, in.Marker):
		disk.Damages = append(disk.Damages, fmt.Sprintf("%s: the log ends at entry %d, the rows at %d", dir, in.Last, began))
	}
	return nil
}

// copyRows links the tables, which never change, and copies the small files beside them.
func copyRows(ctx context.Context, from, to string) error {
	es, err := os.ReadDir(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a server makes them anew; whether it may, the log says
	}
	if err != nil {
		return err
	}
	for _, e := range es {
		if err := ctx.Err(); err != nil {
			return err
		}
		a, b := filepath.Join(from, e.Name()), filepath.Join(to, e.Name())
		switch {
		case !e.Type().IsRegular() || e.Name() == "LOCK":
			continue
		case strings.HasSuffix(e.Name(), ".sst") && os.Link(a, b) == nil:
			continue
		}
		if err := copyFile(a, b); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string) (err error) {
	a, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	b, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(b, a)
	return errors.Join(err, b.Close())
}

// places are the extents that have one: by rows of their own, and by promises.
func places(rows []row) (held []chunk.Held) {
	lo, hi := group.PlaceBounds()
	plo, phi := meta.PreparedBounds()
	add := func(p *record.Placed) {
		x := p.GetPlace()
		held = append(held, chunk.Held{
			ID: p.GetId(), Key: objcache.ChunkKey{Ino: objcache.Ino(p.GetIno()), Index: p.GetChunk()},
			Place: chunk.Place{File: x.GetFile(), Off: x.GetOff(), Start: x.GetStart(), Len: x.GetLen(), CRCs: x.GetCrcs()},
		})
	}
	for _, r := range rows {
		switch k := string(r.key); {
		case k >= string(lo) && k < string(hi):
			p := &record.Placed{}
			if proto.Unmarshal(r.value, p) == nil { // a row that does not parse is found by the check of rows
				add(p)
			}
		case k >= string(plo) && k < string(phi):
			p := &record.Prepared{}
			if proto.Unmarshal(r.value, p) == nil {
				for _, x := range p.GetPlaced() {
					add(x)
				}
			}
		}
	}
	return held
}

// quiet is what a database that is only read has to say.
type quiet struct{}

func (quiet) Infof(string, ...any)           {}
func (quiet) Errorf(string, ...any)          {}
func (quiet) Fatalf(format string, a ...any) { panic(fmt.Sprintf(format, a...)) }
