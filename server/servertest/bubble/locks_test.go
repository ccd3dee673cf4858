package bubble

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/filelock"
	"github.com/objcache/objcache/server/client"
)

// A client that is cut off for longer than its lease: its lock is given to who waits, not before its lease is over, and when it comes back what it had
// staged is not written under a lock that it has lost.
func TestLocks_OfAClientThatIsCutOffAreGivenAwayAndItsBytesRefused(t *testing.T) {
	scripted(t, 3, func(t *testing.T, ctx context.Context, c *cluster, cl *client.Client, dir objcache.Ino) {
		s := script{t, ctx, c, cl, dir}
		f := s.create("f", "before")
		lost, err := c.client("lost")
		s.ok(err)
		defer func() { s.ok(lost.Close()) }()
		l := objcache.Lock{Ino: f, Owner: 1, Exclusive: true, End: filelock.EOF}
		_, err = lost.TryLock(ctx, l, 0)
		s.ok(err)
		session, began := lost.Session(), time.Now()
		data := fill("lost;")
		rs := []objcache.Range{{Len: valueSize}}
		s.ok(lost.Stage(ctx, f, rs[0], at{0, data}))
		c.net.silence("lost", true)
		for waited := false; ; waited = true {
			_, err := cl.TryLock(ctx, l, 7)
			if err == nil {
				if passed := time.Since(began); !waited || passed < 2*lease/3 {
					t.Errorf("the lock of a session that may live was given away after %v", passed)
				}
				break
			}
			if !errors.Is(err, objcache.Busy) {
				t.Fatal(err)
			}
			s.ok(cl.AwaitLock(ctx, l, 7))
		}
		s.write(f, "after!")
		if n := outstanding(t, c); n > 0 {
			t.Errorf("%d writes of a session that has ended are kept", n)
		}
		c.net.silence("lost", false)
		_, err = lost.Flush(ctx, objcache.Flush{Ino: f, Staged: rs, Src: at{0, data}, Size: valueSize, Mtime: time.Now(), Session: session})
		if !errors.Is(err, objcache.Fenced) {
			t.Errorf("the flush of a session that has ended: %v", err)
		}
		if _, err := lost.TryLock(ctx, l, 0); !errors.Is(err, objcache.Busy) {
			t.Errorf("the next session of a client whose lock was given away: %v", err)
		}
		a, err := lost.Getattr(ctx, f)
		s.ok(err)
		if b, err := readAll(ctx, lost, a); err != nil || string(b) != "after!" {
			t.Errorf("reads %.20q, %v", b, err)
		}
		s.ok(cl.Unlock(ctx, l))
	})
}
