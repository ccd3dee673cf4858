//go:build integration

package servertest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server"
	"github.com/objcache/objcache/test/faultproxy"
)

// small servers hold 64 MiB of chunks, and persist by themselves after an hour.
func small(c *server.Config) {
	c.CapacityBytes = 64 << 20
	c.FlushInterval = server.Duration(time.Hour)
}

func TestRoom_MoreThanTheServersHoldIsWrittenAtTheSpeedOfUploads(t *testing.T) {
	r := newRig(t, 1, small)
	const files, size = 8, 16 << 20 // 128 MiB through 64
	for i := range files {
		r.write(r.b, fmt.Sprintf("f%02d", i), random(size, uint64(i)))
	}
	r.flush()
	for i := range files {
		name := fmt.Sprintf("f%02d", i)
		want := random(size, uint64(i))
		same(t, name, r.read(r.lookup(name).Ino), want)
		same(t, "object "+name, r.object(name), want)
	}
}

func TestRoom_WithoutExternalStorageWritersAreToldAndReadersGoOn(t *testing.T) {
	f := newFaulty(t, 1, small)
	remove := f.fault(faultproxy.Rule{Method: "PUT", Fault: faultproxy.Fault{Status: 503}})
	kept := map[string][]byte{}
	var err error
	for i := 0; i < 8 && err == nil; i++ {
		name, body := fmt.Sprintf("f%d", i), random(16<<20, uint64(i))
		a, cerr := f.c.Create(t.Context(), f.b, name, objcache.NewNode{Mode: objcache.ModeRegular | 0o644})
		if cerr != nil {
			t.Fatal(cerr)
		}
		if err = f.commit(a.Ino, 0, body); err == nil {
			kept[name] = body
		}
	}
	if !errors.Is(err, objcache.NoSpace) {
		t.Fatalf("128 MiB into 64 MiB while nothing can be persisted: %v", err)
	}
	for name, want := range kept {
		same(t, name, f.read(f.lookup(name).Ino), want)
	}
	remove()
	f.flush()
	for name, want := range kept {
		same(t, "object "+name, f.object(name), want)
	}
	f.write(f.b, "again", random(16<<20, 99))
	f.flush()
	if _, err := f.s3.Head(t.Context(), "again"); err != nil {
		t.Error(err)
	}
}
