package bubble

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/client"
)

// shared is what all sharers work on: files whose whole content is one value, files that grow by appends, and directories with a few names.
type shared struct {
	registers, logs, dirs []objcache.Ino
}

// history collects what sharers did. Its times are a counter: the bubble's clock stands still while anybody runs.
type history struct {
	clock atomic.Int64
	ops   chan porcupine.Operation // one slot for each operation that may come
}

func newHistory(most int) *history { return &history{ops: make(chan porcupine.Operation, most)} }

// forever is the return of an operation whose outcome nobody knows: it may take effect at any time.
const forever = int64(1) << 60

func (h *history) add(client int, in input, call int64, out output) {
	ret := h.clock.Add(1)
	if out.unknown {
		ret = forever
	}
	h.ops <- porcupine.Operation{ClientId: client, Input: in, Call: call, Output: out, Return: ret}
}

// all returns the history; nobody may add any more.
func (h *history) all() []porcupine.Operation {
	close(h.ops)
	var ops []porcupine.Operation
	for o := range h.ops {
		o.ClientId = len(ops) // operations of unknown outcome overlap with later ones of the same client
		ops = append(ops, o)
	}
	return ops
}

// sharer is a client that works where others do too.
type sharer struct {
	id   int
	c    *client.Client
	rng  *rand.Rand
	on   shared
	h    *history
	log  *journal
	fail func(error)
	set  Settings
	next int
}

func (s *sharer) play(steps int, stop <-chan struct{}) {
	for range steps {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(s.rng.IntN(200)) * time.Millisecond):
		}
		switch k := s.rng.IntN(10); {
		case k < 3:
			s.register()
		case k < 6:
			s.logs()
		default:
			s.directory()
		}
	}
}

// do runs and records one operation. Now and then a program does not wait for its end.
func (s *sharer) do(in input, mayGiveUp bool, f func(ctx context.Context) (string, error)) {
	wait := patience
	if mayGiveUp && s.rng.IntN(12) == 0 {
		wait = time.Duration(s.rng.IntN(400)) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	call := s.h.clock.Add(1)
	result, err := f(ctx)
	for errors.Is(err, objcache.Fenced) { // it was not done: the session has ended
		result, err = f(ctx)
	}
	out := output{result: result}
	switch k := objcache.KindOf(err); {
	case err == nil:
	case k == objcache.NotExist, k == objcache.Exist, k == objcache.NotEmpty:
		out.result = k.String()
	case wait < patience && (k == objcache.IO || k == objcache.Interrupted || k == objcache.Unavailable), k == objcache.NoSpace && s.set.Full:
		if !in.changes() {
			return // nothing was learned
		}
		out.unknown = true
	default:
		s.fail(fmt.Errorf("sharer %d: %v: %w", s.id, in, err))
		return
	}
	s.log.note("s%d: %v -> %v", s.id, in, out)
	s.h.add(s.id, in, call, out)
}

func (s *sharer) value() string {
	s.next++
	return fmt.Sprintf("%d.%d;", s.id, s.next)
}

func (s *sharer) pick(of []objcache.Ino, kind string) (objcache.Ino, string) {
	i := s.rng.IntN(len(of))
	return of[i], fmt.Sprintf("%s%d", kind, i)
}

// valueSize is that of a register's file: behind the value it is filled with the value again, so that a mix of two would show.
const valueSize = 12 << 10

func fill(v string) []byte {
	return []byte(strings.Repeat(v, valueSize/len(v)+1)[:valueSize])
}

func (s *sharer) register() {
	ino, key := s.pick(s.on.registers, "r")
	if s.rng.IntN(2) == 0 {
		s.do(input{op: "read", key: key}, true, func(ctx context.Context) (string, error) {
			b, err := s.read(ctx, ino)
			if err != nil || len(b) == 0 {
				return "", err
			}
			v, _, _ := strings.Cut(string(b), ";")
			if v += ";"; string(b) != string(fill(v)) {
				s.fail(fmt.Errorf("sharer %d: %s is a mix of several writes: begins with %q", s.id, key, v))
			}
			return v, nil
		})
		return
	}
	v := s.value()
	s.do(input{op: "write", key: key, value: v}, true, func(ctx context.Context) (string, error) {
		rs := []objcache.Range{{Len: valueSize}}
		fl := objcache.Flush{Ino: ino, Dirty: rs, Src: at{0, fill(v)}, Size: valueSize, Mtime: time.Now()}
		if s.rng.IntN(3) == 0 {
			if err := s.c.Stage(ctx, ino, rs[0], fl.Src); err != nil {
				return "", err
			}
			fl.Staged, fl.Dirty = rs, nil
		}
		_, err := s.c.Flush(ctx, fl)
		return "", err
	})
}

// read reads a file as of one version, the newest.
func (s *sharer) read(ctx context.Context, ino objcache.Ino) ([]byte, error) {
	for {
		a, err := s.c.Getattr(ctx, ino)
		if err != nil {
			return nil, err
		}
		b, err := readAll(ctx, s.c, a)
		if !errors.Is(err, objcache.Superseded) {
			return b, err
		}
	}
}

func (s *sharer) logs() {
	ino, key := s.pick(s.on.logs, "a")
	switch k := s.rng.IntN(20); {
	case k < 10:
		v := s.value()
		s.do(input{op: "append", key: key, value: v}, true, func(ctx context.Context) (string, error) {
			off, _, err := s.c.Append(ctx, ino, []byte(v), time.Now())
			return fmt.Sprint(off), err
		})
	case k < 19:
		s.do(input{op: "read", key: key}, true, func(ctx context.Context) (string, error) {
			b, err := s.read(ctx, ino)
			return string(b), err
		})
	default:
		size := int64(0)
		s.do(input{op: "write", key: key}, true, func(ctx context.Context) (string, error) {
			_, err := s.c.Setattr(ctx, ino, objcache.SetAttr{Size: &size})
			return "", err
		})
	}
}

// directory works on names. Whoever asks for a name waits for the answer: an inode that nobody was told of could not be recognised.
func (s *sharer) directory() {
	i, j := s.rng.IntN(len(s.on.dirs)), s.rng.IntN(len(s.on.dirs))
	name := func(i int) string { return fmt.Sprintf("d%d/n%d", i, s.rng.IntN(3)) }
	n, m := name(i), name(j)
	d, e := s.on.dirs[i], s.on.dirs[j]
	switch k := s.rng.IntN(20); {
	case k < 6:
		s.do(input{op: "create", key: n}, false, func(ctx context.Context) (string, error) {
			a, err := s.c.Create(ctx, d, n[3:], objcache.NewNode{Mode: objcache.ModeRegular | 0o600})
			return fmt.Sprint(a.Ino), err
		})
	case k < 9:
		s.do(input{op: "unlink", key: n}, false, func(ctx context.Context) (string, error) { return "", s.c.Unlink(ctx, d, n[3:]) })
	case k < 13:
		s.do(input{op: "rename", key: n, value: m}, false, func(ctx context.Context) (string, error) {
			return "", s.c.Rename(ctx, d, n[3:], e, m[3:], 0)
		})
	case k < 17:
		s.do(input{op: "lookup", key: n}, false, func(ctx context.Context) (string, error) {
			a, err := s.c.Lookup(ctx, d, n[3:])
			return fmt.Sprint(a.Ino), err
		})
	default:
		s.list(i)
	}
}

// look reads everything once: what nobody reads cannot be wrong.
func (s *sharer) look() {
	for i, ino := range s.on.registers {
		s.do(input{op: "read", key: fmt.Sprintf("r%d", i)}, false, func(ctx context.Context) (string, error) {
			b, err := s.read(ctx, ino)
			v, _, _ := strings.Cut(string(b), ";")
			if v != "" {
				v += ";"
			}
			return v, err
		})
	}
	for i, ino := range s.on.logs {
		s.do(input{op: "read", key: fmt.Sprintf("a%d", i)}, false, func(ctx context.Context) (string, error) {
			b, err := s.read(ctx, ino)
			return string(b), err
		})
	}
	for i := range s.on.dirs {
		s.list(i)
	}
}

func (s *sharer) list(i int) {
	s.do(input{op: "list", key: fmt.Sprintf("d%d", i)}, false, func(ctx context.Context) (string, error) {
		es, err := list(ctx, s.c, s.on.dirs[i], 100)
		var names []string
		for _, e := range es {
			names = append(names, fmt.Sprintf("d%d/%s=%d", i, e.Name, e.Attr.Ino))
		}
		slices.Sort(names)
		return strings.Join(names, " "), err
	})
}
