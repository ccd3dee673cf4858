//go:build integration

package servertest

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server"
	"github.com/objcache/objcache/test/wait"
)

func scrubbing(c *server.Config) {
	c.ScrubInterval, c.ScrubRate = server.Duration(time.Second), 1<<30
	c.FlushInterval = server.Duration(time.Hour)
}

// TestScrub_FindsWhatNobodyReads: rotten bytes of which external storage has a copy are fetched again, and those of which it has none cost their own
// file alone, which is named.
func TestScrub_FindsWhatNobodyReads(t *testing.T) {
	r := newRig(t, 3, scrubbing)
	clean, rotten, intact := random(300<<10, 1), random(300<<10, 2), random(300<<10, 3)
	r.put("clean", clean)
	same(t, "before", r.read(r.lookup("clean").Ino), clean)
	bad, good := r.write(r.b, "rotten", rotten), r.write(r.mkdir(r.b, "d"), "intact", intact)
	r.rot(clean[70<<10:][:1000])
	r.rot(rotten[70<<10:][:1000])
	wait.Until(t, 30*time.Second, "status names the damaged file", func() bool {
		ps := r.problems()
		return len(ps) == 1 && ps[0].GetPath() == "data/rotten" && strings.Contains(ps[0].GetError(), "offset")
	})
	wait.Until(t, 30*time.Second, "the cached block is dropped", func() bool { return r.cl.Logged("a clean block does not match its checksum") > 0 })
	same(t, "what S3 has too", r.read(r.lookup("clean").Ino), clean)
	same(t, "another file", r.read(good), intact)
	a, err := r.c.Getattr(t.Context(), bad)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.c.ReadAt(t.Context(), bad, a.Version, make([]byte, a.Size), 0); !errors.Is(err, objcache.Corrupt) {
		t.Errorf("read of the damaged file: %v", err)
	}
	r.overwrite(bad, 0, rotten)
	same(t, "written again", r.read(bad), rotten)
	if ps := r.problems(); len(ps) != 0 {
		t.Errorf("problems after it was written again: %v", ps)
	}
}

// rot changes the first byte of what the servers hold on their disks of these bytes, which must be in one block.
func (r *rig) rot(of []byte) {
	r.t.Helper()
	found := 0
	err := filepath.WalkDir(r.cl.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || filepath.Base(filepath.Dir(path)) != "chunks" {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for at := bytes.Index(b, of); at >= 0; at = bytes.Index(b, of) {
			found++
			b[at]++
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			if _, err := f.WriteAt(b[at:at+1], int64(at)); err != nil {
				return errors.Join(err, f.Close())
			}
			if err := f.Close(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || found == 0 {
		r.t.Fatalf("found %d times on the disks: %v", found, err)
	}
}

// problems is what all servers report.
func (r *rig) problems() (out []*rpc.Problem) {
	r.t.Helper()
	for _, m := range r.cl.Configs[0].Members {
		c, err := grpc.NewClient("passthrough:///"+m.Address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			r.t.Fatal(err)
		}
		st, err := rpc.NewAdminClient(c).Status(r.t.Context(), &rpc.StatusRequest{})
		if err := errors.Join(err, c.Close()); err != nil {
			r.t.Fatal(err)
		}
		out = append(out, st.GetProblems()...)
	}
	return out
}
