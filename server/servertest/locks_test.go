//go:build integration

package servertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/filelock"
	"github.com/objcache/objcache/server"
	"github.com/objcache/objcache/server/client"
	"github.com/objcache/objcache/server/ring"
	"github.com/objcache/objcache/test/s3server"
)

const testLease = 1500 * time.Millisecond

func buckets(t *testing.T) []server.Bucket {
	t.Helper()
	gw := s3server.Versitygw(t, "bucket")
	return []server.Bucket{{
		DirName: "data", BucketName: gw.S3.Bucket, Endpoint: gw.S3.Endpoint, AccessKey: gw.S3.AccessKey, SecretKey: gw.S3.SecretKey, Region: gw.S3.Region,
	}}
}

func shortLease(c *server.Config) { c.SessionLease = server.Duration(testLease) }

// locker is a session by hand: it may fall silent, and speak again when it has ended.
type locker struct {
	r     *client.Router
	id    objcache.ClientID
	seq   uint64
	sure  time.Time // until then it surely lives
	dead  bool      // it was told so
	owner uint64
}

// held is one lock from the answer to its request until the request that gives it back, or until its holder must doubt it.
type held struct {
	by       filelock.Owner
	ino      objcache.Ino
	l        filelock.Lock
	from, to time.Time
}

func (k *locker) call(ctx context.Context, hash uint64, h *rpc.Header, r *rpc.Request) (*rpc.Reply, error) {
	r.Header = h
	reply, err := k.r.Call(ctx, hash, r)
	if errors.Is(err, objcache.Fenced) {
		k.dead = true
	}
	return reply, err
}

func (k *locker) session(ctx context.Context, verb rpc.SessionRequest_Verb) error {
	sent := time.Now()
	_, err := k.call(ctx, ring.HashClient(k.id), nil, &rpc.Request{Op: &rpc.Request_Session{Session: &rpc.SessionRequest{Verb: verb, Client: uint64(k.id)}}})
	if err == nil {
		k.sure = sent.Add(testLease * 2 / 3)
	}
	return err
}

func (k *locker) lock(ctx context.Context, ino objcache.Ino, verb rpc.LockRequest_Verb, l filelock.Lock) error {
	k.seq++
	_, err := k.call(ctx, ring.HashInode(ino), &rpc.Header{Client: uint64(k.id), Seq: k.seq, AckBelow: k.seq, Start: time.Now().UnixNano()}, &rpc.Request{
		Op: &rpc.Request_Lock{Lock: &rpc.LockRequest{Ino: uint64(ino), Verb: verb, Lock: &rpc.FileLock{
			Owner: k.owner, Exclusive: l.Exclusive, Start: l.Start, End: l.End,
		}}},
	})
	return err
}

// life is what one locker does until it is killed, falls silent, or time is up.
func (k *locker) life(ctx context.Context, rng *rand.Rand, inos []objcache.Ino, note func(held), silent bool) error {
	if err := k.session(ctx, rpc.SessionRequest_OPEN); err != nil {
		return ignoreEnd(err)
	}
	for range 25 {
		if ctx.Err() != nil || time.Now().After(k.sure) && silent {
			return nil
		}
		if !silent {
			if err := k.session(ctx, rpc.SessionRequest_RENEW); err != nil {
				return ignoreEnd(err)
			}
		}
		start := rng.Uint64N(8)
		l := filelock.Lock{Start: start, End: start + rng.Uint64N(4), Exclusive: rng.IntN(3) > 0}
		ino := inos[rng.IntN(len(inos))]
		err := k.lock(ctx, ino, rpc.LockRequest_TRY, l)
		if errors.Is(err, objcache.Busy) {
			continue
		}
		if err != nil {
			return ignoreEnd(err)
		}
		from, sure := time.Now(), k.sure
		t := time.NewTimer(time.Duration(rng.IntN(20)) * time.Millisecond)
		<-t.C
		to := time.Now()
		if to.After(sure) {
			to = sure
		}
		note(held{filelock.Owner{Session: uint64(k.id), ID: k.owner}, ino, l, from, to})
		if err := k.lock(ctx, ino, rpc.LockRequest_UNLOCK, l); err != nil {
			return ignoreEnd(err)
		}
	}
	return nil
}

// ignoreEnd: a session that the servers end in the middle of a test has lived; so has one whose test is over.
func ignoreEnd(err error) error {
	switch objcache.KindOf(err) {
	case objcache.Fenced, objcache.Interrupted, objcache.IO: // IO: the test's time was over while a server was down
		return nil
	}
	return err
}

func TestLocks_NoTwoHoldersWhateverRestartsOrFallsSilent(t *testing.T) {
	gw := buckets(t)
	cl := Start(t, Config{Servers: 3, Buckets: gw, Change: shortLease})
	c := cl.Client()
	inos := make([]objcache.Ino, 4)
	dir, err := c.Lookup(t.Context(), objcache.RootIno, gw[0].DirName)
	if err != nil {
		t.Fatal(err)
	}
	for i := range inos {
		a, err := c.Create(t.Context(), dir.Ino, fmt.Sprint("f", i), objcache.NewNode{Mode: objcache.ModeRegular | 0o644})
		if err != nil {
			t.Fatal(err)
		}
		inos[i] = a.Ino
	}
	router := &client.Router{View: c.View}
	t.Cleanup(func() { _ = router.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	defer cancel()
	var mu sync.Mutex
	var history []held
	note := func(h held) { mu.Lock(); history = append(history, h); mu.Unlock() }
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 77))
			for ctx.Err() == nil {
				k := &locker{r: router, id: objcache.ClientID(rng.Uint64() | 1), owner: uint64(i)}
				silent := rng.IntN(3) == 0
				if err := k.life(ctx, rng, inos, note, silent); err != nil {
					t.Error(err)
					return
				}
				if !silent && ctx.Err() == nil {
					if err := k.session(ctx, rpc.SessionRequest_CLOSE); ignoreEnd(err) != nil {
						t.Error(err)
					}
				}
				lateRequests(ctx, t, k, inos[0])
			}
		})
	}
	for i := range 4 {
		pause(ctx, 900*time.Millisecond)
		cl.Down(i % 3)
		cl.Up(i % 3)
	}
	all.Wait()
	mu.Lock()
	defer mu.Unlock()
	t.Logf("%d locks", len(history))
	if len(history) < 50 {
		t.Error("too few locks to say anything")
	}
	checkHistory(t, history)
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// lateRequests: once a session was told that it has ended, it gets nothing any more.
func lateRequests(ctx context.Context, t *testing.T, k *locker, ino objcache.Ino) {
	if !k.dead {
		return
	}
	if err := k.lock(ctx, ino, rpc.LockRequest_TRY, filelock.Lock{Start: 100, End: 100}); err == nil {
		t.Error("a lock was granted to a session that has ended")
	}
}

func checkHistory(t *testing.T, all []held) {
	t.Helper()
	for i, a := range all {
		for _, b := range all[:i] {
			la, lb := a.l, b.l
			la.Owner, lb.Owner = a.by, b.by
			if a.ino == b.ino && la.Against(lb) && a.from.Before(b.to) && b.from.Before(a.to) {
				t.Errorf("two at once on %d:\n%+v\n%+v", a.ino, a, b)
			}
		}
	}
}

func TestSession_CloseLeavesNoLocksAndNoResults(t *testing.T) {
	gw := buckets(t)
	cl := Start(t, Config{Servers: 3, Buckets: gw, Change: shortLease})
	a, b := cl.Client(), cl.Client()
	dir, err := a.Lookup(t.Context(), objcache.RootIno, gw[0].DirName)
	if err != nil {
		t.Fatal(err)
	}
	f, err := a.Create(t.Context(), dir.Ino, "f", objcache.NewNode{Mode: objcache.ModeRegular | 0o644})
	if err != nil {
		t.Fatal(err)
	}
	l := objcache.Lock{Ino: f.Ino, Owner: 1, Exclusive: true, End: filelock.EOF}
	if _, err := a.TryLock(t.Context(), l, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := b.TryLock(t.Context(), l, 0); !errors.Is(err, objcache.Busy) {
		t.Fatalf("two have it: %v", err)
	}
	held, ok, err := b.TestLock(t.Context(), l)
	if err != nil || !ok || !held.Exclusive || held.PID != 0 {
		t.Errorf("%+v %v %v", held, ok, err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.TryLock(t.Context(), l, 0); err != nil {
		t.Errorf("after the close: %v", err)
	}
}
