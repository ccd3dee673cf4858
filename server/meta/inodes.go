package meta

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/record"
)

// Limits of extended attributes: what the user metadata of an object can carry beside the rest (bytes).
const (
	maxXattrs    = 2 << 10
	maxXattrName = 255
)

// MaxLinks is the largest number of hard links of a file.
const MaxLinks = 1000

func (e *Eval) putInode(s *rpc.PutInode) error {
	in, err := DecodeInode(s.GetInode())
	if err != nil {
		return err
	}
	old, err := Inode(e.b, objcache.Ino(in.GetIno()))
	if err != nil {
		return err
	}
	if old != nil {
		return objcache.Errorf(objcache.Exist, "inode %d", in.GetIno())
	}
	return e.putOwing(in, in.GetCtime())
}

// relink changes the names of an inode: takes one away, adds one, or both at once (a rename).
func (e *Eval) relink(s *rpc.Relink) error {
	in, err := e.inode(s.GetIno())
	if err != nil {
		return err
	}
	if isDirMode(in.GetMode()) {
		return e.relinkDir(in, s)
	}
	if s.GetDelDir() != 0 {
		i := slices.IndexFunc(in.Links, func(l *record.Link) bool { return l.GetDir() == s.GetDelDir() && l.GetName() == s.GetDelName() })
		if i < 0 {
			return objcache.Errorf(objcache.Conflict, "inode %d is not called %q in directory %d", s.GetIno(), s.GetDelName(), s.GetDelDir())
		}
		l := in.GetLinks()[i]
		if owes := DebtOf(in, l); !proto.Equal(owes, s.GetOwed()) {
			return objcache.Errorf(objcache.Conflict, "name %q of inode %d was uploaded meanwhile", s.GetDelName(), s.GetIno())
		}
		if l.GetKey() != "" {
			in.Trash = append(in.Trash, &record.Base{Key: l.GetKey(), Etag: l.GetEtag(), Dir: l.GetDir(), Name: l.GetName()})
		}
		in.Links = slices.Delete(in.Links, i, i+1)
	}
	if s.GetAddDir() != 0 {
		if len(in.GetLinks()) >= MaxLinks {
			return objcache.Errorf(objcache.TooManyLinks, "inode %d", s.GetIno())
		}
		in.Links = append(in.Links, &record.Link{Dir: s.GetAddDir(), Name: s.GetAddName()})
		in.Dirty = true
	}
	in.Nlink, in.Ctime = uint32(len(in.GetLinks())), max(s.GetNow(), in.GetCtime())
	if in.GetNlink() > 0 {
		settleLinks(in)
		return e.putOwing(in, s.GetNow())
	}
	if e.facts.HasOpen(objcache.Ino(s.GetIno())) {
		in.Orphan, in.Dirty, in.AttrDirty = true, false, false
		return e.putOwing(in, s.GetNow())
	}
	return e.bury(in, s.GetNow())
}

// DebtOf is what an inode owes external storage for one of its names, should that be taken away; nil when nothing ever stood there.
func DebtOf(in *record.Inode, l *record.Link) *rpc.Debt {
	if !InStorage(in, l) {
		return nil
	}
	if left := LeftOf(in, l); l.GetKey() == "" && left != nil {
		return &rpc.Debt{Ino: in.GetIno(), Key: left.GetKey(), Etag: left.GetEtag()}
	}
	return &rpc.Debt{Ino: in.GetIno(), Key: l.GetKey(), Etag: l.GetEtag()}
}

// InStorage reports whether external storage holds, or may come to hold, an object for one name of an inode.
func InStorage(in *record.Inode, l *record.Link) bool {
	it := in.GetIntent()
	return l.GetKey() != "" || it != nil && it.GetDir() == l.GetDir() && it.GetName() == l.GetName() || LeftOf(in, l) != nil
}

// LeftOf is the latest object of a name that an inode still has to delete, although it has the name; nil if there is none.
func LeftOf(in *record.Inode, l *record.Link) *record.Base {
	for _, b := range slices.Backward(in.GetTrash()) {
		if b.GetDir() == l.GetDir() && b.GetName() == l.GetName() {
			return b
		}
	}
	return nil
}

// bury ends an inode that has neither name nor open descriptor. Its row stays only for what external storage or other groups still hold of it.
func (e *Eval) bury(in *record.Inode, now int64) error {
	in.Orphan, in.Dead, in.Dirty, in.AttrDirty = false, true, false, false
	k := objcache.ChunkKey{Ino: objcache.Ino(in.GetIno())}
	if e.facts.Owns(k) && in.GetIntent() == nil { // an upload under way reads the chunk still
		if err := e.dropChunk(k); err != nil {
			return err
		}
		if in.GetSize() <= objcache.ChunkSize && in.GetGeneration() == 0 && len(in.GetTrash()) == 0 {
			return e.deleteInode(in)
		}
	}
	return e.putOwing(in, now)
}

func (e *Eval) relinkDir(in *record.Inode, s *rpc.Relink) error {
	if len(in.GetLinks()) != 1 || in.GetLinks()[0].GetDir() != s.GetDelDir() || in.GetLinks()[0].GetName() != s.GetDelName() {
		return objcache.Errorf(objcache.Conflict, "directory %d is not called %q in directory %d", s.GetIno(), s.GetDelName(), s.GetDelDir())
	}
	old := in.GetLinks()[0]
	oweFor(in, in.GetDir().GetPrefix(), "", old)
	oweFor(in, in.GetDir().GetHeading(), "", old)
	in.Links = []*record.Link{{Dir: s.GetAddDir(), Name: s.GetAddName()}}
	in.Ctime = max(s.GetNow(), in.GetCtime())
	owing, err := e.hasRows(objcache.Ino(s.GetIno()))
	if err != nil {
		return err
	}
	d := in.GetDir()
	d.Moving = d.GetMoving() || d.GetMarker() || owing || !d.GetComplete()
	in.Dirty = true
	return e.putOwing(in, s.GetNow())
}

// forget ends an orphan that nobody has open any more, and the row of a dead inode that owes nothing.
func (e *Eval) forget(s *rpc.Forget) error {
	in, err := Inode(e.b, objcache.Ino(s.GetIno()))
	if err != nil || in == nil {
		return err
	}
	if in.GetOrphan() {
		if e.facts.HasOpen(objcache.Ino(s.GetIno())) {
			return objcache.Errorf(objcache.Conflict, "inode %d is open", s.GetIno())
		}
		return e.bury(in, in.GetCtime())
	}
	if !in.GetDead() || len(in.GetTrash()) > 0 || in.GetIntent() != nil {
		return objcache.Errorf(objcache.Conflict, "inode %d is not finished", s.GetIno())
	}
	if err := e.dropTombstones(objcache.Ino(s.GetIno())); err != nil {
		return err
	}
	return e.deleteInode(in)
}

// setInode changes attributes or extended attributes.
func (e *Eval) setInode(s *rpc.SetInode) error {
	in, err := e.inode(s.GetIno())
	if err != nil {
		return err
	}
	if s.GetSet() != nil {
		setAttributes(in, s.GetSet())
	}
	now := s.GetSet().GetNow()
	if x := s.GetXattr(); x != nil {
		now = x.GetNow()
		if err := setXattr(in, x); err != nil {
			return err
		}
	}
	in.Ctime = max(now, in.GetCtime())
	in.DefaultAttrs = false
	in.AttrDirty = !in.GetOrphan()
	return e.putOwing(in, now)
}

func setAttributes(in *record.Inode, set *rpc.SetattrRequest) {
	if set.Mode != nil {
		in.Mode = in.GetMode()&objcache.ModeMask | set.GetMode()&0o7777
	}
	if set.Uid != nil {
		in.Uid = set.GetUid()
	}
	if set.Gid != nil {
		in.Gid = set.GetGid()
	}
	if set.Atime != nil {
		in.Atime = set.GetAtime()
	}
	if set.Mtime != nil {
		in.Mtime = set.GetMtime()
	}
	if set.GetKillPriv() {
		killPriv(in)
	}
}

func killPriv(in *record.Inode) {
	in.Mode &^= 0o4000
	if in.GetMode()&0o010 != 0 {
		in.Mode &^= 0o2000
	}
}

func setXattr(in *record.Inode, x *rpc.XattrRequest) error {
	_, have := in.GetXattrs()[x.GetName()]
	if x.GetVerb() == rpc.XattrRequest_REMOVE {
		if !have {
			return objcache.Errorf(objcache.NoAttr, "attribute %q of inode %d", x.GetName(), in.GetIno())
		}
		delete(in.Xattrs, x.GetName())
		return nil
	}
	const create, replace = 1, 2
	switch {
	case x.GetFlags()&create != 0 && have:
		return objcache.Errorf(objcache.Exist, "attribute %q of inode %d", x.GetName(), in.GetIno())
	case x.GetFlags()&replace != 0 && !have:
		return objcache.Errorf(objcache.NoAttr, "attribute %q of inode %d", x.GetName(), in.GetIno())
	case len(x.GetName()) > maxXattrName:
		return objcache.Errorf(objcache.RangeError, "attribute name of %d bytes", len(x.GetName()))
	}
	if in.Xattrs == nil {
		in.Xattrs = map[string][]byte{}
	}
	in.Xattrs[x.GetName()] = x.GetValue()
	total := 0
	for k, v := range in.GetXattrs() {
		total += len(k) + len(v)
	}
	if total > maxXattrs {
		return objcache.Errorf(objcache.NoSpace, "extended attributes of inode %d: %d bytes, %d fit an object's metadata", in.GetIno(), total, maxXattrs)
	}
	return nil
}

// flushInode publishes a new version of a file's size; the bytes come with commitChunk or go with cutChunks in the same transaction.
func (e *Eval) flushInode(s *rpc.FlushInode) error {
	in, err := e.inode(s.GetIno())
	if err != nil {
		return err
	}
	switch {
	case in.GetMode()&objcache.ModeMask != objcache.ModeRegular:
		return objcache.Errorf(objcache.Invalid, "inode %d is no regular file", s.GetIno())
	case in.GetLost() != "":
		return objcache.Errorf(objcache.Stale, "the content of inode %d is lost: %s", s.GetIno(), in.GetLost())
	case in.GetVersion() != s.GetVersion():
		return objcache.Errorf(objcache.Conflict, "inode %d is at version %d, not %d", s.GetIno(), in.GetVersion(), s.GetVersion())
	case in.GetGeneration() != s.GetGeneration():
		return objcache.Errorf(objcache.StageLost, "inode %d was truncated: generation %d, not %d", s.GetIno(), in.GetGeneration(), s.GetGeneration())
	}
	in.Version++
	commitsOf(in, s)
	if s.GetTruncate() {
		truncate(in, s.GetSize())
	} else {
		in.Size = max(in.GetSize(), s.GetSize())
	}
	in.Mtime, in.Ctime = s.GetMtime(), max(s.GetNow(), in.GetCtime())
	if s.GetKillPriv() {
		killPriv(in)
	}
	in.Dirty, in.DefaultAttrs = !in.GetOrphan(), false
	return e.putOwing(in, s.GetNow())
}

func truncate(in *record.Inode, size int64) {
	in.Size = size
	in.Generation++
	if b := in.GetBase(); b.GetLength() > size {
		nb := proto.CloneOf(b)
		nb.Length = size
		in.Base = nb
	}
	if it := in.GetIntent(); it != nil && (it.GetLowestCut() == 0 || it.GetLowestCut() > uint64(size)+1) {
		it.LowestCut = uint64(size) + 1
	}
}

// refreshBase takes over what another client did to a clean file's object.
func (e *Eval) refreshBase(s *rpc.RefreshBase) error {
	in, err := Inode(e.b, objcache.Ino(s.GetIno()))
	if err != nil || in == nil {
		return err
	}
	if in.GetDirty() || in.GetIntent() != nil || in.GetDead() || in.GetOrphan() || in.GetBase().GetEtag() != s.GetOldEtag() || len(in.GetLinks()) != 1 ||
		len(in.GetTrash()) > 0 {
		if s.GetGone() { // the name must not go while the inode stays
			return objcache.Errorf(objcache.Conflict, "inode %d is not what external storage held", s.GetIno())
		}
		return nil
	}
	if s.GetGone() {
		in.Links, in.Nlink, in.Trash = nil, 0, nil
		if e.facts.HasOpen(objcache.Ino(s.GetIno())) {
			in.Orphan = true
			return e.putOwing(in, in.GetCtime())
		}
		return e.bury(in, in.GetCtime())
	}
	if s.GetBase() != nil {
		if err := rebase(in, s); err != nil {
			return err
		}
	}
	if err := takeAttributes(in, s.GetAttributes(), s.GetBase() != nil); err != nil {
		return err
	}
	return e.putOwing(in, in.GetCtime())
}

// takeAttributes gives an inode the attributes that its object tells (a record.Inode of the same type), unless the inode's own are newer. An object
// with other bytes has the say.
func takeAttributes(in *record.Inode, told []byte, other bool) error {
	if len(told) == 0 || in.GetAttrDirty() {
		return nil
	}
	said, err := DecodeInode(told)
	if err != nil || !other && !in.GetDefaultAttrs() && said.GetCtime() <= in.GetCtime() {
		return err
	}
	in.Mode, in.Uid, in.Gid, in.Rdev = said.GetMode(), said.GetUid(), said.GetGid(), said.GetRdev()
	in.Atime, in.Mtime, in.Ctime = said.GetAtime(), said.GetMtime(), max(in.GetCtime(), said.GetCtime())
	in.Target, in.Xattrs, in.DefaultAttrs = said.GetTarget(), said.GetXattrs(), said.GetDefaultAttrs()
	return nil
}

// rebase gives an inode the bytes of another object.
func rebase(in *record.Inode, s *rpc.RefreshBase) error {
	base := &record.Base{}
	if err := decode(s.GetBase(), base); err != nil {
		return err
	}
	in.Base, in.Size = base, base.GetSize()
	in.Links[0].Key, in.Links[0].Etag = base.GetKey(), base.GetEtag()
	in.Version++
	in.Links[0].Version = in.GetVersion()
	in.Mtime, in.Ctime = s.GetModified(), max(in.GetCtime(), s.GetModified())
	return nil
}
