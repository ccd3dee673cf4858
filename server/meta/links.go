package meta

import (
	"slices"

	"github.com/objcache/objcache/server/record"
)

// settleLinks draws the conclusions from a file's names being fewer than before, once no upload of it is under way: what only the lost name was still
// owed is owed no more, and bytes that were read from its object are read from that of another name, so that it can be deleted.
func settleLinks(in *record.Inode) {
	if in.GetIntent() != nil || in.GetDir() != nil || len(in.GetLinks()) == 0 {
		return
	}
	if in.GetDirty() && !slices.ContainsFunc(in.GetLinks(), func(l *record.Link) bool { return l.GetKey() == "" || l.GetVersion() != in.GetVersion() }) {
		in.Dirty = false
	}
	b := in.GetBase()
	if b.GetKey() == "" || slices.ContainsFunc(in.GetLinks(), func(l *record.Link) bool { return l.GetKey() == b.GetKey() }) {
		return
	}
	i := slices.IndexFunc(in.GetLinks(), func(l *record.Link) bool { return l.GetKey() != "" && l.GetVersion() == b.GetVersion() })
	if i < 0 {
		return
	}
	l := in.GetLinks()[i]
	in.Base = &record.Base{
		Key: l.GetKey(), Etag: l.GetEtag(), Size: b.GetSize(), Length: b.GetLength(), Dir: l.GetDir(), Name: l.GetName(), Version: b.GetVersion(),
	}
}
