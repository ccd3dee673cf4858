//go:build integration

package servertest

import (
	"testing"
	"time"

	"github.com/objcache/objcache"
)

// Whether a writer may keep them only his mount knows.
func TestFlush_KeepsSetuidAndTheTimesOfTheWrites(t *testing.T) {
	r := newRig(t, 3, nil)
	ctx := t.Context()
	ino := r.write(r.b, "f", []byte("x"))
	mode := uint32(0o6755)
	before, err := r.c.Setattr(ctx, ino, objcache.SetAttr{Mode: &mode})
	if err != nil {
		t.Fatal(err)
	}
	wrote := before.Ctime.Add(time.Millisecond)
	after, err := r.c.Flush(ctx, objcache.Flush{
		Ino: ino, Dirty: []objcache.Range{{Len: 1}}, Src: at{0, []byte("y")}, Size: 1, Mtime: time.Unix(1000, 0), Ctime: wrote,
	})
	if err != nil {
		t.Fatal(err)
	}
	if after.Mode&0o7777 != 0o6755 || !after.Mtime.Equal(time.Unix(1000, 0)) || !after.Ctime.Equal(wrote) {
		t.Errorf("after a flush mode %o, mtime %v, ctime %v, want ctime %v", after.Mode, after.Mtime, after.Ctime, wrote)
	}
	_, after, err = r.c.Append(ctx, ino, []byte("z"), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if after.Mode&0o7777 != 0o6755 {
		t.Errorf("after an append mode %o", after.Mode)
	}
	after, err = r.c.Setattr(ctx, ino, objcache.SetAttr{KillPriv: true})
	if err != nil {
		t.Fatal(err)
	}
	if after.Mode&0o7777 != 0o755 {
		t.Errorf("mode %o when the mount asks to clear", after.Mode)
	}
}
