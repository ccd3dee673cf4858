package mirror

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/meta"
)

// How often a keeper hears: of changed rows, and of how far the log has come.
const (
	Interval = time.Second
	beat     = 100 * time.Millisecond
)

// maxChanged is how many changed rows are remembered; more, and everything is copied again.
const maxChanged = 1 << 18

// maxPause is the longest pause after a keeper did not answer.
const maxPause = 10 * time.Second

// Replicated reports whether a row belongs to the group, and not to one server's disk.
func Replicated(key []byte) bool { return len(key) > 0 && (key[0] == 'G' || key[0] == 'H') }

// Sender sends a group's rows to their keeper. Changed may be called from the beginning on; Run sends.
type Sender struct {
	Group       objcache.GroupID
	Incarnation string
	Former      []string // lives whose copy may be overwritten
	DB          *pebble.DB
	Put         func(context.Context, *rpc.MirrorPut) (*rpc.MirrorState, error)
	Logger      *slog.Logger
	// Applied is the index of the last entry of the log that rows hold.
	Applied func(meta.Reader) (uint64, error)
	// Superseded hears that the keeper has a copy of another life of the group, which this one has not taken over.
	Superseded func(error)

	mu struct {
		sync.Mutex
		changed  map[string]uint64 // and the last entry that did
		overflow bool
		reached  uint64
		taken    time.Time // of the copy
		index    uint64    // as of which the copy is
	}
	begun  uint64 // entry that the rows held when Run began; of Run alone, like what follows
	index  uint64 // that the keeper has
	behind uint64 // index that the keeper was told of last
	synced bool   // the keeper has a copy of this life
}

// Changed notes rows that an entry of the log has changed. The database has the change.
func (s *Sender) Changed(index uint64, keys [][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.reached = max(s.mu.reached, index)
	if s.mu.changed == nil {
		s.mu.changed = map[string]uint64{}
	}
	for _, k := range keys {
		if len(s.mu.changed) >= maxChanged {
			s.mu.overflow = true
			return
		}
		if Replicated(k) {
			s.mu.changed[string(k)] = index
		}
	}
}

// Age is how old the keeper's copy is; false when it has none of this life.
func (s *Sender) Age(now time.Time) (time.Duration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return now.Sub(s.mu.taken), !s.mu.taken.IsZero()
}

// Index is the entry of the log as of which the keeper has a copy; 0: it has none of this life.
func (s *Sender) Index() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.index
}

// Run sends until ctx ends.
func (s *Sender) Run(ctx context.Context) error {
	begun, err := s.Applied(s.DB)
	if err != nil {
		return err
	}
	s.begun = begun
	tick := time.NewTicker(beat)
	defer tick.Stop()
	pause, next := Interval, time.Now()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		switch now := time.Now(); {
		case now.Before(next) && (!s.synced || pause > Interval):
			continue
		case now.Before(next):
			err = s.tell(ctx)
		default:
			next = now.Add(pause)
			err = s.send(ctx)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			pause = Interval
			continue
		}
		if objcache.KindOf(err) == objcache.Precondition {
			s.Superseded(err)
			return err
		}
		pause = min(2*pause, maxPause)
		next = time.Now().Add(pause)
	}
}

// tell says how far the log has come, between two sendings of rows.
func (s *Sender) tell(ctx context.Context) error {
	s.mu.Lock()
	reached := s.mu.reached
	s.mu.Unlock()
	if reached <= s.behind {
		return nil
	}
	resync, err := s.put(ctx, &rpc.MirrorPut{From: s.index, To: s.index, Reached: reached})
	s.behind, s.synced = reached, s.synced && !resync
	return err
}

// send brings the keeper's copy up to now.
func (s *Sender) send(ctx context.Context) error {
	taken := time.Now()
	now := s.DB.NewSnapshot()
	to, err := s.heard(ctx, now)
	if err != nil {
		return errors.Join(err, now.Close())
	}
	changed, whole := s.take(to)
	var resync bool
	if whole {
		resync, err = s.sendAll(ctx, now, to, taken)
	} else {
		resync, err = s.sendChanged(ctx, now, changed, to, taken)
	}
	err = errors.Join(err, now.Close())
	if err != nil || resync {
		s.synced = false // what is not there is not known any more
		return err
	}
	s.index, s.behind, s.synced = to, to, true
	s.mu.Lock()
	s.mu.taken, s.mu.index = taken, to
	s.mu.Unlock()
	return nil
}

// heard is the entry of the log as of which a snapshot is, once Changed has been told of it: rows are applied first.
func (s *Sender) heard(ctx context.Context, now *pebble.Snapshot) (uint64, error) {
	to, err := s.Applied(now)
	if err != nil {
		return 0, err
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		s.mu.Lock()
		reached := max(s.mu.reached, s.begun)
		s.mu.Unlock()
		if reached >= to {
			return to, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, objcache.Errorf(objcache.Interrupted, "mirror: %w", ctx.Err())
		}
	}
}

// take returns the rows that changed up to an entry of the log; later changes stay for the next time. whole: all rows must be sent.
func (s *Sender) take(to uint64) (changed map[string]uint64, whole bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed, whole = s.mu.changed, s.mu.overflow || !s.synced
	s.mu.changed, s.mu.overflow = nil, false
	for k, index := range changed {
		if index > to {
			if s.mu.changed == nil {
				s.mu.changed = map[string]uint64{}
			}
			s.mu.changed[k] = index
		}
	}
	return changed, whole
}

func (s *Sender) put(ctx context.Context, r *rpc.MirrorPut) (resync bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	r.Group, r.Incarnation, r.Former = uint32(s.Group), s.Incarnation, s.Former
	st, err := s.Put(ctx, r)
	if err == nil {
		err = st.GetFailure().Err()
	}
	return st.GetResync(), err
}

func (s *Sender) sendChanged(ctx context.Context, now *pebble.Snapshot, changed map[string]uint64, to uint64, taken time.Time) (resync bool, err error) {
	keys := make([]string, 0, len(changed))
	for k := range changed {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	m := &rpc.MirrorPut{From: s.index, To: to, Taken: taken.UnixNano()}
	size := 0
	for _, k := range keys {
		row := &rpc.MirrorRow{Key: []byte(k)}
		v, c, err := now.Get([]byte(k))
		switch {
		case err == nil:
			row.Value = append([]byte{}, v...)
			if err := c.Close(); err != nil {
				return false, err
			}
		case !errors.Is(err, pebble.ErrNotFound):
			return false, fmt.Errorf("read row: %w", err)
		}
		m.Rows = append(m.Rows, row)
		if size += len(k) + len(row.GetValue()); size < pageBytes {
			continue
		}
		m.More = true
		if resync, err := s.put(ctx, m); err != nil || resync {
			return resync, err
		}
		m, size = &rpc.MirrorPut{From: s.index, To: to, Taken: taken.UnixNano(), Page: m.GetPage() + 1}, 0
	}
	return s.put(ctx, m)
}

// sendAll copies everything, range by range.
func (s *Sender) sendAll(ctx context.Context, now *pebble.Snapshot, to uint64, taken time.Time) (resync bool, err error) {
	it, err := now.NewIter(nil)
	if err != nil {
		return false, fmt.Errorf("read rows: %w", err)
	}
	m := &rpc.MirrorPut{Whole: true, To: to, Taken: taken.UnixNano()}
	size := 0
	for ok := it.First(); ok; ok = it.Next() {
		if !Replicated(it.Key()) {
			continue
		}
		if size >= pageBytes {
			m.Upper, m.More = bytes.Clone(it.Key()), true
			if resync, err := s.put(ctx, m); err != nil || resync {
				return resync, errors.Join(err, it.Close())
			}
			m, size = &rpc.MirrorPut{Whole: true, To: to, Taken: taken.UnixNano(), Lower: m.GetUpper(), Page: m.GetPage() + 1}, 0
		}
		m.Rows = append(m.Rows, &rpc.MirrorRow{Key: bytes.Clone(it.Key()), Value: append([]byte{}, it.Value()...)})
		size += len(it.Key()) + len(it.Value())
	}
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return false, fmt.Errorf("read rows: %w", err)
	}
	return s.put(ctx, m)
}
