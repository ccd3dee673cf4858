//go:build integration

package crash

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/objcache/objcache/failpoint"
)

// smallDisk moves the state of a server that is stopped to a file system of its own, of some MiB.
func (c *cluster) smallDisk(name string, mib int) (string, error) {
	state := filepath.Join(c.state, "servers", name, "state")
	image, first := filepath.Join(filepath.Dir(c.state), "disk"), filepath.Join(filepath.Dir(c.state), "first")
	const script = `set -e
		truncate -s "$3M" "$1"
		mkfs.ext4 -q -m 0 "$1"
		mkdir -p "$2"
		mount -o loop "$1" "$2"
		cp -a "$4/." "$2"
		rmdir "$2/lost+found"
		umount "$2"
		mount -o loop "$1" "$4"`
	_, err := c.l.run("sh", "-c", script, "sh", image, first, fmt.Sprint(mib), state)
	c.t.Cleanup(func() {
		_ = unix.Unmount(first, unix.MNT_DETACH)
		_ = unix.Unmount(state, unix.MNT_DETACH)
	})
	return state, err
}

// fill takes the last byte of a file system, again and again for a time, and then gives all of them back. It returns how many it took at most.
func fill(ctx context.Context, dir string, long time.Duration) (most int64, err error) {
	f, err := os.Create(filepath.Join(dir, "ballast"))
	if err != nil {
		return 0, err
	}
	for end := time.Now().Add(long); time.Now().Before(end); {
		for n := 1 << 20; n > 0; n /= 16 {
			for err = nil; err == nil; {
				var took int
				took, err = f.Write(make([]byte, n))
				most += int64(took)
			}
			if !errors.Is(err, unix.ENOSPC) {
				return most, errors.Join(err, f.Close())
			}
		}
		if _, err := within(ctx, 50*time.Millisecond, never); err != nil {
			return most, errors.Join(err, f.Close())
		}
	}
	return most, errors.Join(f.Close(), os.Remove(f.Name()))
}

// fullFor is how long the disk stays full.
func fullFor() time.Duration {
	if long() {
		return 30 * time.Second
	}
	return 5 * time.Second
}

// hoarder writes one file after the other and remembers those that it was told were written. It may be told that there is no room.
type hoarder struct {
	rng           *rand.Rand
	top           string
	files         map[string][]byte
	done, refused atomic.Int64
}

func (h *hoarder) work(ctx context.Context) error {
	for i := 0; ctx.Err() == nil; i++ {
		name, b := fmt.Sprintf("f%d", i), random(h.rng, 1+h.rng.IntN(200<<10))
		err := os.WriteFile(filepath.Join(h.top, name), b, 0o644)
		switch {
		case err == nil:
			h.files[name] = b
			h.done.Add(1)
		case errors.Is(err, unix.ENOSPC):
			h.refused.Add(1)
		default:
			return err
		}
		if _, err := within(ctx, 20*time.Millisecond, never); err != nil {
			break
		}
	}
	return nil
}

func (h *hoarder) compare(top string) error {
	for name, want := range h.files {
		if got, err := os.ReadFile(filepath.Join(top, filepath.Base(h.top), name)); err != nil || !bytes.Equal(got, want) {
			return fmt.Errorf("%s/%s: %d bytes of %d, or others, %w", top, name, len(got), len(want), err)
		}
	}
	return nil
}

// Somebody else takes the last byte of one server's disk while programs write, and gives it back.
func TestFullDisk_OfAServerNothingAcknowledgedIsLostAndItGoesOnByItself(t *testing.T) {
	t.Parallel()
	path := build(t, "failpoints")
	c := newCluster(t, newLauncher(t, failpoint.LogSegmentBytes+"=262144", failpoint.SnapshotEntries+"=50"), path) // log and rows ask for room all the time
	c.must("up", "--flush-interval", "400ms", "--capacity", "128MiB")
	c.must("stop", "server-1")
	disk, err := c.smallDisk("server-1", 192)
	if err != nil {
		t.Fatal(err)
	}
	c.must("start", "server-1")
	st, err := c.status()
	if err != nil {
		t.Fatal(err)
	}
	v, err := c.victim(st, "server-1")
	if err != nil {
		t.Fatal(err)
	}
	before, err := v.process()
	if err != nil {
		t.Fatal(err)
	}
	var hs []*hoarder
	for i := range workers {
		h := &hoarder{rng: rand.New(rand.NewPCG(60, uint64(i))), top: filepath.Join(c.mnt(), bucket, fmt.Sprintf("w%d", i)), files: map[string][]byte{}}
		if err := os.Mkdir(h.top, 0o755); err != nil {
			t.Fatal(err)
		}
		hs = append(hs, h)
	}
	count := func() (done, refused int64) {
		for _, h := range hs {
			done, refused = done+h.done.Load(), refused+h.refused.Load()
		}
		return done, refused
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	g, gctx := errgroup.WithContext(ctx)
	for _, h := range hs {
		g.Go(func() error { return h.work(gctx) })
	}
	began := time.Now()
	g.Go(func() error {
		defer cancel()
		if _, err := within(gctx, time.Second, never); err != nil {
			return err
		}
		earlier, _ := count()
		took, err := fill(gctx, disk, fullFor())
		if err != nil {
			return err
		}
		done, refused := count()
		t.Logf("%d MiB taken: %d files written meanwhile, %d refused", took>>20, done-earlier, refused)
		ok, err := within(gctx, 30*time.Second, func() (bool, error) {
			now, _ := count()
			return now > done+30, nil
		})
		if err == nil && !ok {
			err = errors.New("nobody can write although there is room again")
		}
		return err
	})
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if after, err := v.process(); err != nil || after != before {
		t.Errorf("another process serves now: %v, %v", after, err)
	}
	if dead, err := v.dead(); err != nil || dead {
		t.Errorf("the server has died: %v", err)
	}
	second := t.TempDir()
	c.must("mount", second)
	c.must("flush")
	for _, h := range hs {
		for _, top := range []string{filepath.Join(c.mnt(), bucket), filepath.Join(second, bucket), filepath.Join(c.state, "s3", "data", bucket)} {
			if err := h.compare(top); err != nil {
				t.Error(err)
			}
		}
	}
	done, refused := count()
	t.Logf("%d files checked, %d refused, %v", done, refused, time.Since(began).Round(time.Second))
	c.must("umount", second)
	c.must("down")
}
