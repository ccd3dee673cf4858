package bubble

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/objcache/objcache"
)

// What a player does to its files, and to the model beside.

func (p *player) create() {
	d, n := p.dir(), p.newName()
	x := &inode{mode: 0o600 | uint32(p.rng.IntN(0o100)), links: 1, uid: uint32(p.rng.IntN(3)), gid: uint32(p.rng.IntN(3))}
	p.note("create %q in %d", n, d.ino)
	p.makeNode(d, n, x, objcache.NewNode{Mode: objcache.ModeRegular | x.mode, Credentials: objcache.Credentials{UID: x.uid, GID: x.gid}})
}

func (p *player) symlink() {
	d, n := p.dir(), p.newName()
	x := &inode{mode: 0o777, links: 1, target: "to/" + n}
	p.note("symlink %q in %d", n, d.ino)
	p.makeNode(d, n, x, objcache.NewNode{Mode: objcache.ModeSymlink | x.mode, Target: x.target})
}

func (p *player) mkdir() {
	d, n := p.dir(), p.newName()
	p.note("mkdir %q in %d", n, d.ino)
	p.makeNode(d, n, &inode{dir: map[string]*inode{}, mode: 0o755}, objcache.NewNode{Mode: objcache.ModeDir | 0o755})
}

func (p *player) makeNode(d *inode, n string, x *inode, node objcache.NewNode) {
	var a objcache.Attr
	err := p.do(func(ctx context.Context) (err error) {
		a, err = p.c.Create(ctx, d.ino, n, node)
		return err
	})
	if p.expect(err, objcache.Exist, d.dir[n] != nil) {
		x.ino, x.mtime = a.Ino, a.Mtime.UnixNano()
		d.dir[n] = x
		p.note("-> %d", x.ino)
	}
}

// size draws a file's size or an offset in it.
func (p *player) size() int64 {
	switch k := p.rng.IntN(16); {
	case k == 0 && p.set.Large:
		return objcache.ChunkSize - 3000 + p.rng.Int64N(6000) // over the border of two chunks
	case k < 4:
		return p.rng.Int64N(200 << 10)
	}
	return p.rng.Int64N(9000)
}

// content is bytes that are nowhere the same.
func (p *player) content(n int) []byte {
	b := make([]byte, n+8)
	s := p.rng.Uint64()
	for i := 0; i < n; i += 8 {
		s = s*6364136223846793005 + 1442695040888963407
		binary.LittleEndian.PutUint64(b[i:], s|0x0101010101010101)
	}
	return b[:n]
}

// at reads b as the bytes from an offset on.
type at struct {
	off int64
	b   []byte
}

func (a at) ReadAt(p []byte, off int64) (int, error) {
	n := copy(p, a.b[off-a.off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (p *player) write() {
	if f, ok := p.pick(isFile); ok {
		p.writeTo(f.node, f.path)
	}
}

func (p *player) writeTo(x *inode, name string) {
	off := min(p.size(), int64(len(x.body))+5000)
	if p.set.Large && p.rng.IntN(20) == 0 {
		off = objcache.ChunkSize - 2000
	}
	b := p.content(1 + p.rng.IntN([]int{100, 9000, 150 << 10}[p.rng.IntN(3)]))
	if p.rng.IntN(8) == 0 {
		off = off / (64 << 10) * (64 << 10)
		b = p.content(64 << 10 * (1 + p.rng.IntN(3)))
	}
	p.note("write %d at %d of %s (%d)", len(b), off, name, x.ino)
	rs := []objcache.Range{{Off: off, Len: int64(len(b))}}
	mtime := time.Now()
	fl := objcache.Flush{Ino: x.ino, Dirty: rs, Src: at{off, b}, Size: off + int64(len(b)), Mtime: mtime}
	staged := p.rng.IntN(3) == 0
	p.must(func(ctx context.Context) error {
		if staged {
			if err := p.c.Stage(ctx, x.ino, rs[0], fl.Src); err != nil {
				return err
			}
			fl.Staged, fl.Dirty = rs, nil
		}
		_, err := p.c.Flush(ctx, fl)
		return err
	})
	x.put(off, b)
	x.mtime = mtime.UnixNano()
}

func (p *player) truncate() {
	f, ok := p.pick(isFile)
	if !ok {
		return
	}
	n := p.size()
	if p.rng.IntN(2) == 0 {
		n = p.rng.Int64N(int64(len(f.node.body)) + 1)
	}
	p.note("truncate %s (%d) from %d to %d", f.path, f.node.ino, len(f.node.body), n)
	var a objcache.Attr
	p.must(func(ctx context.Context) (err error) {
		a, err = p.c.Setattr(ctx, f.node.ino, objcache.SetAttr{Size: &n})
		return err
	})
	f.node.resize(n)
	f.node.mtime = a.Mtime.UnixNano()
}

func (p *player) add() {
	f, ok := p.pick(isFile)
	if !ok {
		return
	}
	b := p.content(1 + p.rng.IntN(20000))
	p.note("append %d to %s (%d)", len(b), f.path, f.node.ino)
	var off int64
	mtime := time.Now()
	p.must(func(ctx context.Context) (err error) {
		off, _, err = p.c.Append(ctx, f.node.ino, b, mtime)
		return err
	})
	if off != int64(len(f.node.body)) {
		p.failf("%s (%d): appended at %d, size is %d", f.path, f.node.ino, off, len(f.node.body))
	}
	f.node.put(off, b)
	f.node.mtime = mtime.UnixNano()
}

func (p *player) rename() {
	f, ok := p.pick(anything)
	if !ok {
		return
	}
	const exchange = 2
	d, n := p.dir(), p.newName()
	to := d.dir[n]
	flags := uint32(0)
	if to != nil && isFile(to) && isFile(f.node) && p.rng.IntN(2) == 0 {
		flags = exchange
	}
	p.note("rename %s (%d) to %q in %d, flags %d", f.path, f.node.ino, n, d.ino, flags)
	err := p.do(func(ctx context.Context) error { return p.c.Rename(ctx, f.parent.ino, f.name, d.ino, n, flags) })
	switch {
	case to == f.node:
		p.expect(err, 0, false)
		return
	case f.node.dir != nil && to != nil && to.dir == nil:
		p.expect(err, objcache.NotDir, true)
		return
	case f.node.dir == nil && to != nil && to.dir != nil:
		p.expect(err, objcache.IsDir, true)
		return
	case f.node.dir != nil && below(d, f.node):
		p.expect(err, objcache.Invalid, true)
		return
	case to != nil && len(to.dir) > 0:
		p.expect(err, objcache.NotEmpty, true)
		return
	}
	p.expect(err, 0, false)
	delete(f.parent.dir, f.name)
	d.dir[n] = f.node
	switch {
	case flags == exchange:
		f.parent.dir[f.name] = to
	case to != nil:
		to.links--
	}
}

func (p *player) link() {
	f, ok := p.pick(isFile)
	if !ok {
		return
	}
	d, n := p.dir(), p.newName()
	p.note("link %s (%d) as %q in %d", f.path, f.node.ino, n, d.ino)
	err := p.do(func(ctx context.Context) error {
		_, err := p.c.Link(ctx, f.node.ino, d.ino, n)
		return err
	})
	if p.expect(err, objcache.Exist, d.dir[n] != nil) {
		d.dir[n] = f.node
		f.node.links++
	}
}

func (p *player) unlink() {
	f, ok := p.pick(notDir)
	if !ok {
		return
	}
	p.note("unlink %s (%d)", f.path, f.node.ino)
	p.must(func(ctx context.Context) error { return p.c.Unlink(ctx, f.parent.ino, f.name) })
	delete(f.parent.dir, f.name)
	f.node.links--
}

func (p *player) rmdir() {
	f, ok := p.pick(isDir)
	if !ok {
		return
	}
	p.note("rmdir %s (%d)", f.path, f.node.ino)
	err := p.do(func(ctx context.Context) error { return p.c.Rmdir(ctx, f.parent.ino, f.name) })
	if p.expect(err, objcache.NotEmpty, len(f.node.dir) > 0) {
		delete(f.parent.dir, f.name)
	}
}

func (p *player) setattr(x *inode, path string) {
	mode, uid, mtime := uint32(0o400+p.rng.IntN(0o200)), uint32(p.rng.IntN(4)), time.Unix(1e9+p.rng.Int64N(1e8), p.rng.Int64N(1e9))
	set := objcache.SetAttr{Mode: &mode}
	x.mode = mode
	if p.rng.IntN(2) == 0 {
		set.UID = &uid
		x.uid = uid
	}
	if p.rng.IntN(2) == 0 && x.dir == nil {
		set.Mtime = &mtime
		x.mtime = mtime.UnixNano()
	}
	p.note("setattr of %s (%d): mode %o", path, x.ino, mode)
	p.must(func(ctx context.Context) error {
		_, err := p.c.Setattr(ctx, x.ino, set)
		return err
	})
}

func (p *player) chmod() {
	if f, ok := p.pick(isFile); ok {
		p.setattr(f.node, f.path)
	}
}

func (p *player) chmodDir() {
	if f, ok := p.pick(isDir); ok {
		p.setattr(f.node, f.path)
	}
}

func (p *player) xattr() {
	f, ok := p.pick(anything)
	if !ok || f.node.target != "" {
		return
	}
	n, v := fmt.Sprintf("user.%d", p.rng.IntN(3)), fmt.Sprint(p.rng.IntN(1000))
	_, have := f.node.xattrs[n]
	if p.rng.IntN(3) == 0 {
		p.note("removexattr %s of %s (%d)", n, f.path, f.node.ino)
		err := p.do(func(ctx context.Context) error { return p.c.Removexattr(ctx, f.node.ino, n) })
		if p.expect(err, objcache.NoAttr, !have) {
			delete(f.node.xattrs, n)
		}
		return
	}
	p.note("setxattr %s=%s of %s (%d)", n, v, f.path, f.node.ino)
	p.must(func(ctx context.Context) error { return p.c.Setxattr(ctx, f.node.ino, n, []byte(v), 0) })
	if f.node.xattrs == nil {
		f.node.xattrs = map[string]string{}
	}
	f.node.xattrs[n] = v
}

func (p *player) persist() {
	f, ok := p.pick(isFile)
	if !ok {
		return
	}
	p.note("persist %s (%d)", f.path, f.node.ino)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := p.c.Persist(ctx, f.node.ino); err != nil {
		p.note("not persisted: %v", err) // external storage is allowed to fail
	}
}

func (p *player) refresh() {
	d := p.dir()
	p.note("look at directory %d again", d.ino)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := p.c.Refresh(ctx, d.ino); err != nil {
		p.note("not looked: %v", err)
	}
}

const mostOpen = 3

func (p *player) keepOpen() {
	f, ok := p.pick(isFile)
	if !ok || len(p.open) == mostOpen || p.set.Lockers > 0 { // a session that ends closes its files, and here they do end
		return
	}
	p.note("open %s (%d)", f.path, f.node.ino)
	p.must(func(ctx context.Context) error {
		_, err := p.c.Open(ctx, f.node.ino)
		return err
	})
	p.open = append(p.open, f.node)
}

func (p *player) release() {
	if len(p.open) == 0 {
		return
	}
	i := p.rng.IntN(len(p.open))
	p.note("close %d", p.open[i].ino)
	p.c.Release(p.open[i].ino)
	p.open = slices.Delete(p.open, i, i+1)
}

func (p *player) releaseAll() {
	for len(p.open) > 0 {
		p.release()
	}
}

// useOpen writes to and reads from an open file, which may have no name any more.
func (p *player) useOpen() {
	if len(p.open) == 0 {
		return
	}
	x := p.open[p.rng.IntN(len(p.open))]
	if p.rng.IntN(2) == 0 {
		p.writeTo(x, "an open file")
	}
	p.note("read open %d, %d links", x.ino, x.links)
	var a objcache.Attr
	p.must(func(ctx context.Context) (err error) {
		a, err = p.c.Getattr(ctx, x.ino)
		return err
	})
	if int(a.Nlink) != x.links {
		p.failf("open %d has %d links, should be %d", x.ino, a.Nlink, x.links)
	}
	p.sameBytes(p.c, a, x.body, "an open file")
}
