package bubble

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/filelock"
	"github.com/objcache/objcache/server/client"
)

// locks is what lockers work on and what they know of each other: files to lock, whose content is a number that only the holder of the whole file counts
// up, and who surely held what, when.
type locks struct {
	inos  []objcache.Ino
	spoil objcache.Ino // a register that lockers write to under sessions that have ended
	clock *history     // for its ticks
	mu    struct {
		sync.Mutex
		held    []held
		counted []map[int]bool // by file: the numbers that were written
		unknown []map[int]bool // by file: those of which nobody knows whether they were
	}
}

// held is one lock, from the answer to its request until the last request that its session sent and that was answered as its own.
type held struct {
	file     int
	flock    bool
	l        filelock.Lock
	from, to int64
}

func newLocks(h *history, spoil objcache.Ino, inos []objcache.Ino) *locks {
	k := &locks{inos: inos, spoil: spoil, clock: h}
	for range inos {
		k.mu.counted, k.mu.unknown = append(k.mu.counted, map[int]bool{}), append(k.mu.unknown, map[int]bool{})
	}
	return k
}

func (k *locks) tick() int64 { return k.clock.clock.Add(1) }

// check wants no two holders at once, and no number written twice.
func (k *locks) check() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, a := range k.mu.held {
		for _, b := range k.mu.held[:i] {
			if a.file == b.file && a.flock == b.flock && a.l.Against(b.l) && a.from < b.to && b.from < a.to {
				return fmt.Errorf("two hold file %d at once: %+v and %+v", a.file, a, b)
			}
		}
	}
	return nil
}

// locker is a client that takes file locks, dies now and then, and is cut off for longer than its lease.
type locker struct {
	id     int
	host   string
	lives  int
	c      *client.Client
	of     *cluster
	on     *locks
	rng    *rand.Rand
	log    *journal
	fail   func(error)
	set    Settings
	ticket uint64
}

func (k *locker) note(format string, args ...any) {
	k.log.note("l%d: %s", k.id, fmt.Sprintf(format, args...))
}

func (k *locker) play(steps int, stop <-chan struct{}) {
	for range steps {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(k.rng.IntN(150)) * time.Millisecond):
		}
		var err error
		switch n := k.rng.IntN(80); {
		case n < 38:
			err = k.count()
		case n < 78:
			err = k.hold()
		case n < 79:
			err = k.fallSilent()
		default:
			err = k.die()
		}
		if err != nil {
			k.fail(fmt.Errorf("locker %d: %w", k.id, err))
			return
		}
	}
}

// lease is that of sessions by default.
const lease = 30 * time.Second

// over reports whether a request may have been the last of its session: Fenced, it was not done; IO, nobody knows.
func over(err error) bool { return errors.Is(err, objcache.Fenced) || errors.Is(err, objcache.IO) }

func (k *locker) unlock(ctx context.Context, l objcache.Lock) error {
	if err := k.c.Unlock(ctx, l); !over(err) {
		return err
	}
	return nil // it went with the session
}

// mostWait is how long a locker waits for a lock: who died has it until the restarts are over.
const mostWait = 10 * time.Second

// acquire takes a lock, waiting for it in the queue. It is false when it takes too long, and when the session has changed meanwhile: nobody can say whose the lock is then.
func (k *locker) acquire(ctx context.Context, l objcache.Lock) (session uint64, ok bool, err error) {
	k.ticket++
	session = k.c.Session()
	for began := time.Now(); ; {
		if time.Since(began) > mostWait {
			return 0, false, k.c.LeaveLock(ctx, l, k.ticket)
		}
		_, err := k.c.TryLock(ctx, l, k.ticket)
		switch {
		case err == nil:
			return session, k.c.Session() == session, nil
		case over(err):
			return 0, false, nil
		case !errors.Is(err, objcache.Busy):
			return 0, false, err
		}
		wait, cancel := context.WithTimeout(ctx, 2*time.Second)
		err = k.c.AwaitLock(wait, l, k.ticket)
		late := wait.Err() != nil
		cancel()
		if err != nil && !over(err) && (!late || ctx.Err() != nil) {
			return 0, false, fmt.Errorf("wait for a lock: %w", err)
		}
	}
}

// surely returns the time until which the lock was held for sure: when a request was sent that was answered under the same session. 0: never.
func (k *locker) surely(ctx context.Context, ino objcache.Ino, session uint64) (int64, error) {
	sent := k.on.tick()
	_, err := k.c.Getattr(ctx, ino)
	if over(err) || k.c.Session() != session {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return sent, nil
}

func (k *locker) pause(longest time.Duration) {
	time.Sleep(time.Duration(k.rng.Int64N(int64(longest))))
}

// hold takes a range, holds it a while, and gives it back.
func (k *locker) hold() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	file := k.rng.IntN(len(k.on.inos))
	l := objcache.Lock{Ino: k.on.inos[file], Owner: uint64(1 + k.rng.IntN(2)), Exclusive: k.rng.IntN(3) > 0, Flock: k.rng.IntN(3) == 0}
	if l.End = filelock.EOF; !l.Flock {
		l.Start = 100 + k.rng.Uint64N(8)
		l.End = l.Start + k.rng.Uint64N(4)
	}
	session, ok, err := k.acquire(ctx, l)
	if err != nil {
		return err
	}
	from, to := k.on.tick(), int64(0)
	for range k.rng.IntN(4) {
		if !ok {
			break
		}
		k.pause(time.Second)
		until, err := k.surely(ctx, l.Ino, session)
		if err != nil {
			return err
		}
		ok, to = until > 0, max(to, until)
	}
	if to > from {
		h := held{file, l.Flock, filelock.Lock{
			Owner: filelock.Owner{Session: uint64(k.id)<<32 | session, ID: l.Owner}, Exclusive: l.Exclusive, Start: l.Start, End: l.End,
		}, from, to}
		k.note("held %+v", h)
		k.on.mu.Lock()
		k.on.mu.held = append(k.on.mu.held, h)
		k.on.mu.Unlock()
	}
	return k.unlock(ctx, l)
}

// count adds one to a file's number while nobody else may.
func (k *locker) count() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	file := k.rng.IntN(len(k.on.inos))
	l := objcache.Lock{Ino: k.on.inos[file], Owner: 9, Exclusive: true, End: 50}
	session, ok, err := k.acquire(ctx, l)
	if err != nil || !ok {
		return errors.Join(err, k.unlock(ctx, l))
	}
	n, err := k.number(ctx, l.Ino)
	if over(err) {
		return k.unlock(ctx, l)
	}
	if err != nil {
		return err
	}
	k.pause(500 * time.Millisecond)
	err = k.writeNumber(ctx, l.Ino, session, n+1)
	k.note("counts file %d to %d in session %d: %v", file, n+1, session, err)
	if werr := k.on.wrote(file, n, err); werr != nil {
		return werr
	}
	if err != nil && !k.mayNot(err) {
		return err
	}
	return k.unlock(ctx, l)
}

// wrote judges that the number n of a file was read, and n+1 written, by who had the lock.
func (k *locks) wrote(file, n int, err error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch counted, unknown := k.mu.counted[file], k.mu.unknown[file]; {
	case n > 0 && !counted[n] && !unknown[n]:
		return fmt.Errorf("file %d has the number %d, which nobody wrote under a lock", file, n)
	case err == nil && counted[n+1]:
		return fmt.Errorf("the number %d of file %d was written twice: two had the lock", n+1, file)
	case err == nil:
		counted[n+1] = true
	case errors.Is(err, objcache.IO):
		unknown[n+1] = true
	}
	return nil
}

func (k *locker) number(ctx context.Context, ino objcache.Ino) (int, error) {
	a, err := k.c.Getattr(ctx, ino)
	if err != nil || a.Size == 0 {
		return 0, err
	}
	b, err := readAll(ctx, k.c, a)
	if errors.Is(err, objcache.Superseded) {
		return k.number(ctx, ino)
	}
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(b)))
}

// numberSize is that of a file with a number.
const numberSize = 9000

func (k *locker) writeNumber(ctx context.Context, ino objcache.Ino, session uint64, n int) error {
	body := fmt.Appendf(nil, "%*d", numberSize, n)
	rs := []objcache.Range{{Len: numberSize}}
	fl := objcache.Flush{Ino: ino, Dirty: rs, Src: at{0, body}, Size: numberSize, Mtime: time.Now(), Session: session}
	if k.rng.IntN(2) == 0 {
		if err := k.c.Stage(ctx, ino, rs[0], fl.Src); err != nil {
			return err
		}
		fl.Staged, fl.Dirty = rs, nil
	}
	_, err := k.c.Flush(ctx, fl)
	return err
}

// fallSilent is cut off for longer than its lease with a lock and staged bytes: when it comes back, all of it counts still, or nothing.
func (k *locker) fallSilent() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	l := objcache.Lock{Ino: k.on.inos[0], Owner: 9, Exclusive: true, Start: 200, End: 200}
	session, ok, err := k.acquire(ctx, l)
	if err != nil || !ok {
		return errors.Join(err, k.unlock(ctx, l))
	}
	value := fmt.Sprintf("l%d.%d;", k.id, k.ticket)
	body := fill(value)
	rs := []objcache.Range{{Len: valueSize}}
	if err := k.c.Stage(ctx, k.on.spoil, rs[0], at{0, body}); err != nil && !k.mayNot(err) {
		return err
	}
	k.note("falls silent in session %d", session)
	k.of.faults.Add("client cut off for longer than its lease")
	k.of.net.silence(k.host, true)
	time.Sleep(2 * lease)
	k.of.net.silence(k.host, false)
	call := k.on.tick()
	_, err = k.c.Flush(ctx, objcache.Flush{
		Ino: k.on.spoil, Staged: rs, Src: at{0, body}, Size: valueSize, Mtime: time.Now(), Session: session,
	})
	k.note("is back: %v", err)
	switch {
	case errors.Is(err, objcache.Fenced): // if it was done all the same, somebody will read what nobody wrote
		k.of.faults.Add("flush refused for the end of its session")
	case err == nil || errors.Is(err, objcache.IO): // the owner of its row was restarted again and again, each time with a new lease
		k.on.clock.add(100+k.id, input{op: "write", key: "r0", value: value}, call, output{unknown: err != nil})
	case !k.mayNot(err):
		return err
	}
	return k.unlock(ctx, l) // of the new session, which does not have it
}

// die leaves a lock and staged bytes behind without a word; another client takes its place.
func (k *locker) die() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	file := k.rng.IntN(len(k.on.inos))
	if _, _, err := k.acquire(ctx, objcache.Lock{Ino: k.on.inos[file], Owner: 9, Exclusive: true, End: 50}); err != nil {
		return err
	}
	if err := k.c.Stage(ctx, k.on.spoil, objcache.Range{Len: valueSize}, at{0, fill("dead;")}); err != nil && !k.mayNot(err) {
		return err
	}
	k.note("dies holding file %d", file)
	k.of.faults.Add("client died without a word")
	k.of.net.cut(k.host)
	if err := k.c.Close(); err != nil {
		k.note("a dead client's end: %v", err)
	}
	return k.begin()
}

// mayNot reports whether bytes could not be staged for a reason that is none of the locker's.
func (k *locker) mayNot(err error) bool {
	return over(err) || k.set.Full && errors.Is(err, objcache.NoSpace)
}

// begin opens the locker's next life.
func (k *locker) begin() error {
	k.lives++
	k.host = fmt.Sprintf("l%d.%d", k.id, k.lives)
	for range 5 { // servers may be down
		c, err := k.of.client(k.host)
		if err == nil {
			k.c = c
			return nil
		}
		k.note("no session yet: %v", err)
	}
	return errors.New("no session for five minutes")
}
