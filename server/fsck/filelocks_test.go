package fsck_test

import (
	"slices"
	"testing"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/filelock"
	"github.com/objcache/objcache/server/fsck"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
)

func TestFileLocks_BelongToASessionAndToAFile(t *testing.T) {
	const lives, gone = objcache.ClientID(7), objcache.ClientID(8)
	for name, c := range map[string]struct {
		ino   objcache.Ino
		by    objcache.ClientID
		codes []fsck.Code
	}{
		"sound":        {file, lives, nil},
		"no session":   {file, gone, []fsck.Code{"lock-without-session"}},
		"no such file": {4711, lives, []fsck.Code{"lock-without-inode"}},
	} {
		w := newWorld(t)
		w.put(1, meta.SessionKey(lives), &record.Session{Node: "n"})
		row, err := meta.FileLocksRow(c.ino, meta.FileLocks{Posix: filelock.Table{{Owner: filelock.Owner{Session: uint64(c.by), ID: 1}, End: 9}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.dbs[w.cluster.View.OwnerOfInode(c.ino)].Set(row.GetKey(), row.GetValue(), nil); err != nil {
			t.Fatal(err)
		}
		found, err := fsck.Check(w.cluster)
		if err != nil {
			t.Fatal(err)
		}
		var codes []fsck.Code
		for _, f := range found {
			codes = append(codes, f.Code)
		}
		if !slices.Equal(codes, c.codes) {
			t.Errorf("%s: found %v, should be %v", name, found, c.codes)
		}
	}
}
