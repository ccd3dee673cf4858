package group

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/protobuf/proto"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/chunk"
	"github.com/objcache/objcache/server/record"
	"github.com/objcache/objcache/server/ring"
)

// world is some groups in one process. Their logs are in memory and apply at once; peers are called directly.
type world struct {
	t      *testing.T
	view   *ring.View
	mu     sync.Mutex
	groups map[objcache.GroupID]*member
	// lose drops a message to a group before (true) or after it arrives.
	lose func(kind string, to objcache.GroupID) (before, after bool)
	sent []*rpc.PrepareRequest // every Prepare, in order
}

type member struct {
	g     *Group
	log   *memoryLog
	bytes *memoryBytes
	fs    *vfs.MemFS
}

// memoryLog keeps entries over restarts; each start is a new term.
type memoryLog struct {
	mu      sync.Mutex
	entries [][]byte
	terms   []uint64
	term    uint64
	sm      *Group
	// refuse makes the append of an entry fail: without it reaching the log, or although it does.
	refuse func(en *record.Entry) (fail, logged bool)
	// late makes the append of an entry fail although it will be in the log: before the next one, or the next read point.
	late func(en *record.Entry) bool
	due  [][]byte
}

func (l *memoryLog) Propose(_ context.Context, data []byte) (any, error) {
	en := &record.Entry{}
	if err := proto.Unmarshal(data, en); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sm == nil {
		return nil, objcache.Errorf(objcache.Unavailable, "log is closed")
	}
	if l.late != nil && l.late(en) {
		l.due = append(l.due, data)
		return nil, objcache.Errorf(objcache.Unavailable, "append")
	}
	l.appendDueLocked()
	fail, logged := false, true
	if l.refuse != nil {
		fail, logged = l.refuse(en)
	}
	var res any
	if logged {
		res = l.appendLocked(data)
	}
	if fail {
		return nil, objcache.Errorf(objcache.Unavailable, "append")
	}
	return res, nil
}

func (l *memoryLog) appendLocked(data []byte) any {
	l.entries, l.terms = append(l.entries, data), append(l.terms, l.term)
	return l.sm.Apply(uint64(len(l.entries)), l.term, data)
}

func (l *memoryLog) appendDueLocked() {
	for _, data := range l.due {
		l.appendLocked(data)
	}
	l.due = nil
}

func (l *memoryLog) Term() uint64                     { return l.term }
func (l *memoryLog) WaitLeader(context.Context) error { return nil }

// Read is a read point: what was appended before is applied when it returns.
func (l *memoryLog) Read(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.appendDueLocked()
	return nil
}

// Close returns when nothing is being applied any more, like the real log's.
func (l *memoryLog) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sm = nil
	return nil
}

// memoryBytes counts what is live.
type memoryBytes struct {
	mu   sync.Mutex
	next uint64
	live map[uint64][]byte
	upTo uint64 // what is not behind it is synced
}

func (b *memoryBytes) Write(_ context.Context, _ objcache.ChunkKey, off int64, p []byte) (chunk.Place, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next++
	b.live[b.next] = append([]byte{}, p...)
	return chunk.Place{File: b.next, Start: off, Len: int64(len(p))}, nil
}

func (b *memoryBytes) Sync(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.upTo = b.next
	return nil
}

// synced reports whether everything that a promise names is on the disk.
func (b *memoryBytes) synced(promise []byte) bool {
	p := &record.Prepared{}
	if err := proto.Unmarshal(promise, p); err != nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return !slices.ContainsFunc(p.GetPlaced(), func(pl *record.Placed) bool { return pl.GetPlace().GetFile() > b.upTo })
}

func (b *memoryBytes) Read(_ context.Context, _ objcache.ChunkKey, pl chunk.Place, off int64, p []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	copy(p, b.live[pl.File][off-pl.Start:])
	return nil
}
func (b *memoryBytes) Retain(objcache.ChunkKey, chunk.Place) {}
func (b *memoryBytes) Started() error                        { return nil }
func (b *memoryBytes) OnShort(func() error)                  {}
func (b *memoryBytes) Free(_ objcache.ChunkKey, pl chunk.Place, _ uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.live, pl.File)
}
func (b *memoryBytes) Verify(context.Context, objcache.ChunkKey, chunk.Place, chunk.Pace) error {
	return nil
}
func (b *memoryBytes) Durable(uint64)                                              {}
func (b *memoryBytes) Adopt(objcache.ChunkKey, string, []chunk.Piece, int64) error { return nil }
func (b *memoryBytes) DropClean(objcache.ChunkKey)                                 {}

func (b *memoryBytes) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.live)
}

func newWorld(t *testing.T, n int) *world {
	t.Helper()
	w := &world{t: t, groups: map[objcache.GroupID]*member{}}
	var ms []ring.Member
	for i := range n {
		ms = append(ms, ring.Member{Group: objcache.GroupID(i + 1), Name: string(rune('a' + i)), Weight: 1})
	}
	v, err := ring.New(objcache.ViewVersion{Epoch: 1, Version: 1}, ms)
	if err != nil {
		t.Fatal(err)
	}
	w.view = v
	for _, m := range ms {
		w.groups[m.Group] = &member{log: &memoryLog{}, bytes: &memoryBytes{live: map[uint64][]byte{}}, fs: vfs.NewMem()}
		w.up(m.Group)
	}
	t.Cleanup(func() {
		for id := range w.groups {
			w.down(id)
		}
	})
	return w
}

func (w *world) up(id objcache.GroupID) {
	w.t.Helper()
	m := w.groups[id]
	db, err := pebble.Open("", &pebble.Options{FS: m.fs, DisableWAL: true, Logger: quiet{}})
	if err != nil {
		w.t.Fatal(err)
	}
	rebuilt, err := ReadRebuilt(db)
	if err != nil {
		w.t.Fatal(err)
	}
	g, err := Open(w.t.Context(), Config{
		KeepFinished: -1, Rebuilt: rebuilt,
		ID: id, DB: db, Bytes: m.bytes, Peers: w, View: func() *ring.View { return w.view }, Logger: slog.New(slog.DiscardHandler), Grace: time.Nanosecond, Fence: w.fence,
		OpenLog: func(g *Group) (Log, error) {
			m.log.mu.Lock()
			defer m.log.mu.Unlock()
			m.log.sm, m.log.refuse = g, nil
			m.log.term++
			for i, e := range m.log.entries {
				g.Apply(uint64(i+1), m.log.terms[i], e)
			}
			return m.log, nil
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.mu.Lock()
	m.g = g
	w.mu.Unlock()
}

type quiet struct{}

func (quiet) Infof(string, ...any)      {}
func (quiet) Errorf(string, ...any)     {}
func (quiet) Fatalf(f string, a ...any) { panic(f) }

func (w *world) down(id objcache.GroupID) {
	w.t.Helper()
	w.mu.Lock()
	g := w.groups[id].g
	w.groups[id].g = nil
	w.mu.Unlock()
	if g == nil {
		return
	}
	if err := g.Close(); err != nil {
		w.t.Error(err)
	}
}

// group is a running group; nil when it is down.
func (w *world) group(id objcache.GroupID) *Group {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.groups[id].g
}

// send carries one message, or loses it.
func send[R any](w *world, kind string, to objcache.GroupID, call func(*Group) (R, error)) (R, error) {
	var none R
	lost := objcache.Errorf(objcache.Unavailable, "group %d", to)
	var before, after bool
	w.mu.Lock()
	lose := w.lose
	w.mu.Unlock()
	if lose != nil {
		before, after = lose(kind, to)
	}
	g := w.group(to)
	if before || g == nil {
		return none, lost
	}
	r, err := call(g)
	if after {
		return none, lost
	}
	return r, err
}

func (w *world) losing(f func(kind string, to objcache.GroupID) (before, after bool)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lose = f
}

func (w *world) Prepare(ctx context.Context, to objcache.GroupID, r *rpc.PrepareRequest) (*rpc.PrepareReply, error) {
	w.mu.Lock()
	w.sent = append(w.sent, r)
	w.mu.Unlock()
	return send(w, "prepare", to, func(g *Group) (*rpc.PrepareReply, error) { return g.Prepare(ctx, r) })
}

func (w *world) Decide(ctx context.Context, to objcache.GroupID, r *rpc.DecideRequest) (*rpc.DecideReply, error) {
	return send(w, "decide", to, func(g *Group) (*rpc.DecideReply, error) { return g.Decide(ctx, r) })
}

func (w *world) Query(ctx context.Context, to objcache.GroupID, r *rpc.QueryRequest) (*rpc.QueryReply, error) {
	return send(w, "query", to, func(g *Group) (*rpc.QueryReply, error) { return g.Query(ctx, r) })
}

// ino is an inode number that a group owns.
func (w *world) ino(id objcache.GroupID, nth int) uint64 {
	for i := objcache.Ino(1000); ; i++ {
		if w.view.OwnerOfInode(i) == id {
			if nth--; nth < 0 {
				return uint64(i)
			}
		}
	}
}

func put(ino uint64) *rpc.Step {
	b, err := proto.Marshal(&record.Inode{Ino: ino, Mode: objcache.ModeRegular | 0o644, Nlink: 1, Version: 1})
	if err != nil {
		panic(err)
	}
	return &rpc.Step{Step: &rpc.Step_PutInode{PutInode: &rpc.PutInode{Inode: b}}}
}

func (w *world) put(client, seq uint64, inos ...uint64) error {
	var steps []*rpc.Step
	for _, i := range inos {
		steps = append(steps, put(i))
	}
	_, err := w.group(1).Transact(w.t.Context(), Tx{Header: &rpc.Header{Client: client, Seq: seq, Start: 1}, Steps: steps})
	return err
}

// eventually waits for a state.
func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(10 * time.Second); !ok(); <-tick.C {
		if time.Now().After(end) {
			w.t.Fatalf("never: %s", what)
		}
	}
}
