package mirror

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/meta"
)

// pair is a group's rows, their sender and their keeper.
type pair struct {
	t      *testing.T
	db     *pebble.DB
	sender *Sender
	index  uint64

	mu     sync.Mutex // of what the sender's goroutine uses too
	keeper *Keeper
	fail   func(*rpc.MirrorPut) error // before the keeper gets it
	puts   []*rpc.MirrorPut
}

func openDB(t *testing.T) *pebble.DB {
	db, err := pebble.Open("db", &pebble.Options{FS: vfs.NewMem(), Logger: quiet{}})
	if err != nil {
		t.Fatal(err)
	}
	return db
}

type quiet struct{}

func (quiet) Infof(string, ...any)           {}
func (quiet) Errorf(string, ...any)          {}
func (quiet) Fatalf(format string, a ...any) { panic(fmt.Sprintf(format, a...)) }

// inBubble runs f beside a sender that runs.
func inBubble(t *testing.T, f func(t *testing.T, p *pair)) {
	synctest.Test(t, func(t *testing.T) {
		p := &pair{t: t, db: openDB(t), keeper: NewKeeper(openDB(t))}
		p.sender = &Sender{Group: 2, Incarnation: "first", DB: p.db, Logger: slog.New(slog.DiscardHandler), Put: p.put, Applied: p.applied}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- p.sender.Run(ctx) }()
		f(t, p)
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if err := errors.Join(p.db.Close(), p.keeper.Close()); err != nil {
			t.Error(err)
		}
	})
}

// applied is as the group's rows tell it, in the row that set writes.
func (p *pair) applied(r meta.Reader) (uint64, error) {
	v, c, err := r.Get([]byte("La"))
	if errors.Is(err, pebble.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return binary.BigEndian.Uint64(v), c.Close()
}

func (p *pair) put(ctx context.Context, r *rpc.MirrorPut) (*rpc.MirrorState, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fail != nil {
		if err := p.fail(r); err != nil {
			return nil, err
		}
	}
	p.puts = append(p.puts, r)
	return p.keeper.Put(ctx, r)
}

// failing makes messages fail before they arrive; nil: none.
func (p *pair) failing(f func(*rpc.MirrorPut) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fail = f
}

// sent are the messages that arrived since the first n.
func (p *pair) sent(n int) []*rpc.MirrorPut {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.puts[n:])
}

// set applies one entry of the log; an empty value deletes.
func (p *pair) set(rows map[string]string) {
	p.t.Helper()
	b := p.db.NewBatch()
	var keys [][]byte
	for k, v := range rows {
		var err error
		if v == "" {
			err = b.Delete([]byte(k), nil)
		} else {
			err = b.Set([]byte(k), []byte(v), nil)
		}
		if err != nil {
			p.t.Fatal(err)
		}
		keys = append(keys, []byte(k))
	}
	p.index++
	if err := errors.Join(b.Set([]byte("La"), binary.BigEndian.AppendUint64(nil, p.index), nil), p.db.Apply(b, pebble.NoSync)); err != nil {
		p.t.Fatal(err)
	}
	p.sender.Changed(p.index, keys)
}

// kept is what the keeper would give back.
func (p *pair) kept() (rows map[string]string, head *rpc.MirrorPage) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	rows = map[string]string{}
	for after := []byte(nil); ; {
		page, err := p.keeper.Fetch(p.t.Context(), &rpc.MirrorFetch{Group: 2, After: after})
		if err != nil || page.GetFailure() != nil {
			p.t.Fatal(err, page.GetFailure())
		}
		for _, r := range page.GetRows() {
			rows[string(r.GetKey())], after = string(r.GetValue()), r.GetKey()
		}
		if page.GetLast() {
			return rows, page
		}
	}
}

func (p *pair) wants(want map[string]string, index, reached uint64) {
	p.t.Helper()
	rows, head := p.kept()
	if !maps.Equal(rows, want) || head.GetIndex() != index || head.GetReached() != reached || head.GetPartial() {
		p.t.Errorf("kept %v as of %d of %d (partial %v), want %v as of %d of %d", rows, head.GetIndex(), head.GetReached(), head.GetPartial(), want, index, reached)
	}
}

func TestMirror_HasWhatWasThereASecondAgoAndCountsWhatIsYounger(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		p.set(map[string]string{"Ha": "1", "Gb": "2", "Lc": "this disk's own"})
		time.Sleep(2 * time.Second)
		p.wants(map[string]string{"Ha": "1", "Gb": "2"}, 1, 1)
		p.set(map[string]string{"Ha": "3", "Gb": "", "Hd": "4"})
		p.set(map[string]string{"Ha": "5"})
		time.Sleep(1100 * time.Millisecond)
		p.wants(map[string]string{"Ha": "5", "Hd": "4"}, 3, 3)
		if age, ok := p.sender.Age(time.Now()); !ok || age > 1100*time.Millisecond || p.sender.Index() != 3 {
			t.Errorf("age %v, index %d", age, p.sender.Index())
		}
		before := len(p.sent(0))
		time.Sleep(time.Second)
		for _, r := range p.sent(before) {
			if len(r.GetRows()) > 0 || r.GetWhole() {
				t.Errorf("rows were sent again: %v", r)
			}
		}
		for age := Interval; age > beat/2; age, _ = p.sender.Age(time.Now()) { // just after rows were sent
			time.Sleep(beat / 2)
		}
		p.set(map[string]string{"Ha": "6"})
		p.set(map[string]string{"Ha": "7"})
		time.Sleep(2 * beat)
		p.wants(map[string]string{"Ha": "5", "Hd": "4"}, 3, 5) // two entries have no copy yet
	})
}

func TestMirror_AfterAFailureEverythingIsSentAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		p.set(map[string]string{"Ha": "1", "Hb": "1"})
		time.Sleep(2 * time.Second)
		p.failing(func(*rpc.MirrorPut) error { return objcache.Errorf(objcache.Unavailable, "the neighbour is down") })
		p.set(map[string]string{"Ha": "2", "Hb": ""})
		time.Sleep(time.Minute)
		p.wants(map[string]string{"Ha": "1", "Hb": "1"}, 1, 1)
		p.failing(nil)
		time.Sleep(2 * maxPause)
		p.wants(map[string]string{"Ha": "2"}, 2, 2)
	})
}

func TestMirror_AKeeperThatHasAnotherEntryGetsEverything(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		p.set(map[string]string{"Ha": "1"})
		time.Sleep(2 * time.Second)
		p.mu.Lock()
		if err := p.keeper.Close(); err != nil {
			t.Fatal(err)
		}
		p.keeper = NewKeeper(openDB(t)) // its disk is another, too
		p.mu.Unlock()
		p.set(map[string]string{"Hb": "2"})
		time.Sleep(4 * time.Second)
		p.wants(map[string]string{"Ha": "1", "Hb": "2"}, 2, 2)
	})
}

func TestMirror_ManyRowsGoInSeveralMessages(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		want := map[string]string{}
		value := make([]byte, 100_000)
		for i := range 60 { // about three pages
			want[fmt.Sprintf("H%03d", i)] = string(value)
		}
		p.set(want)
		time.Sleep(2 * time.Second)
		p.wants(want, 1, 1)
		whole := 0
		for _, r := range p.sent(0) {
			if r.GetWhole() {
				whole++
			}
		}
		if whole < 3 {
			t.Errorf("%d messages of a whole copy", whole)
		}
		value[0] = 1
		changed := maps.Clone(want)
		for k := range changed {
			changed[k] = string(value)
		}
		delete(changed, "H059")
		n := 0
		p.failing(func(*rpc.MirrorPut) error { // the connection breaks after the first page of the change
			if n++; n == 2 {
				return objcache.Errorf(objcache.Unavailable, "broken")
			}
			return nil
		})
		p.set(changed)
		time.Sleep(time.Second)
		if _, head := p.kept(); !head.GetPartial() {
			t.Error("half of a change is not marked")
		}
		time.Sleep(10 * time.Second)
		changed["H059"] = want["H059"]
		p.wants(changed, 2, 2)
	})
}

func TestMirror_OfALifeThatWasNotTakenOverIsNotOverwritten(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		p.set(map[string]string{"Ha": "1"})
		time.Sleep(2 * time.Second)
		put := func(incarnation string, former ...string) error {
			st, err := p.keeper.Put(t.Context(), &rpc.MirrorPut{Group: 2, Incarnation: incarnation, Former: former, Whole: true, To: 9, Taken: 1})
			return errors.Join(err, st.GetFailure().Err())
		}
		if err := put("second"); !errors.Is(err, objcache.Precondition) {
			t.Errorf("a life that knows nothing of the first: %v", err)
		}
		p.wants(map[string]string{"Ha": "1"}, 1, 1)
		if err := put("third", "zeroth", "first"); err != nil {
			t.Error(err)
		}
		p.wants(map[string]string{}, 9, 9)
	})
}
