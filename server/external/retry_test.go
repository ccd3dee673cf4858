package external_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/external"
	"github.com/objcache/objcache/server/external/externaltest"
	"github.com/objcache/objcache/server/external/memstore"
	"github.com/prometheus/client_golang/prometheus"
)

func TestContract_Guarded(t *testing.T) {
	m := external.NewMetrics(prometheus.NewRegistry())
	externaltest.Run(t, func(*testing.T) external.Store {
		return external.Guard(memstore.New(memstore.Config{}), m, 4, external.RetryConfig{})
	})
}

func put(ctx context.Context, s external.Store, key, data string) error {
	_, err := s.Put(ctx, key, strings.NewReader(data), nil, external.Condition{})
	return err
}

// bubble runs f on a fake store and the same with retries, on fake time.
func bubble(t *testing.T, f func(t *testing.T, fake *memstore.Store, s external.Store)) {
	synctest.Test(t, func(t *testing.T) {
		fake := memstore.New(memstore.Config{})
		f(t, fake, external.Retry(fake, external.RetryConfig{}))
	})
}

func TestRetry_UnavailableOnlyUntilItPasses(t *testing.T) {
	bubble(t, func(t *testing.T, fake *memstore.Store, s external.Store) {
		fake.Inject(memstore.Fault{Op: external.OpPut, Times: 5, Before: memstore.Unavailable})
		if err := put(t.Context(), s, "k", "x"); err != nil || fake.Count(external.OpPut) != 6 {
			t.Errorf("got %v after %d requests", err, fake.Count(external.OpPut))
		}
	})
}

func TestRetry_NothingElse(t *testing.T) {
	for _, k := range objcache.Kinds() {
		if k == objcache.Unavailable {
			continue
		}
		bubble(t, func(t *testing.T, fake *memstore.Store, s external.Store) {
			fake.Inject(memstore.Fault{Before: objcache.Errorf(k, "injected")})
			start := time.Now()
			_, err := s.Head(t.Context(), "k")
			_, _, getErr := s.Get(t.Context(), "k", 0, -1, "")
			if objcache.KindOf(err) != k || objcache.KindOf(getErr) != k || fake.Count(external.OpHead) != 1 || fake.Count(external.OpGet) != 1 || time.Since(start) != 0 {
				t.Errorf("%v: got %v and %v after %v, %v", k, err, getErr, fake.Counts(), time.Since(start))
			}
		})
	}
}

func TestRetry_EndsInTime(t *testing.T) {
	for op, want := range map[external.Op]time.Duration{external.OpHead: 60 * time.Second, external.OpGet: 60 * time.Second, external.OpPut: 30 * time.Second} {
		bubble(t, func(t *testing.T, fake *memstore.Store, s external.Store) {
			fake.Inject(memstore.Fault{Before: memstore.Unavailable})
			start := time.Now()
			err := request(t.Context(), s, op)
			took, n := time.Since(start), fake.Count(op)
			if objcache.KindOf(err) != objcache.Unavailable || took > want || took < want-5*time.Second || n < 8 || n > 100 {
				t.Errorf("%s: %v after %v and %d requests", op, err, took, n)
			}
		})
	}
}

// A store that never answers is left at the deadline too, in the middle of an attempt.
func TestRetry_EndsASilentAttempt(t *testing.T) {
	for op, want := range map[external.Op]time.Duration{external.OpHead: 60 * time.Second, external.OpGet: 60 * time.Second, external.OpPut: 30 * time.Second} {
		bubble(t, func(t *testing.T, fake *memstore.Store, s external.Store) {
			fake.Inject(memstore.Fault{Delay: time.Hour})
			start := time.Now()
			err := request(t.Context(), s, op)
			if took := time.Since(start); objcache.KindOf(err) != objcache.Unavailable || took != want || len(fake.Objects()) != 0 {
				t.Errorf("%s: %v after %v, %v", op, err, took, fake.Objects())
			}
		})
	}
}

func request(ctx context.Context, s external.Store, op external.Op) error {
	switch op {
	case external.OpGet:
		_, _, err := s.Get(ctx, "k", 0, -1, "")
		return err
	case external.OpPut:
		return put(ctx, s, "k", "x")
	default:
		_, err := s.Head(ctx, "k")
		return err
	}
}

func TestRetry_CancelEndsAPauseAtOnce(t *testing.T) {
	for _, op := range []external.Op{external.OpHead, external.OpGet, external.OpPut} {
		bubble(t, func(t *testing.T, fake *memstore.Store, s external.Store) {
			fake.Inject(memstore.Fault{Before: memstore.Unavailable})
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(7*time.Second, cancel)
			start := time.Now()
			err := request(ctx, s, op)
			if objcache.KindOf(err) != objcache.Interrupted || time.Since(start) != 7*time.Second {
				t.Errorf("%s: %v after %v", op, err, time.Since(start))
			}
		})
	}
}

func TestRetry_LostReplyOfCompleteIsHandedOn(t *testing.T) {
	bubble(t, func(t *testing.T, fake *memstore.Store, s external.Store) {
		id, err := s.CreateUpload(t.Context(), "k", nil)
		if err != nil {
			t.Fatal(err)
		}
		etag, err := s.UploadPart(t.Context(), "k", id, 1, strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		fake.Inject(memstore.Fault{Op: external.OpCompleteUpload, Times: 1, After: memstore.Unavailable})
		_, err = s.CompleteUpload(t.Context(), "k", id, []external.Part{{Number: 1, ETag: etag}}, external.Condition{})
		if objcache.KindOf(err) != objcache.NoUpload || string(fake.Objects()["k"]) != "x" {
			t.Errorf("got %v, %v", err, fake.Objects())
		}
	})
}

func TestRetry_BodyIsFetchedAgainOnlyBeforeItsFirstByte(t *testing.T) {
	for _, c := range []struct {
		cut      int64
		want     string
		requests int
	}{{0, "hello", 2}, {1, "h", 1}, {4, "hell", 1}} {
		bubble(t, func(t *testing.T, fake *memstore.Store, s external.Store) {
			fake.Set("k", []byte("hello"), nil)
			fake.Inject(memstore.Fault{Op: external.OpGet, Times: 1, Cut: &c.cut})
			r, _, err := s.Get(t.Context(), "k", 0, -1, "")
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			got, err := io.ReadAll(r)
			if string(got) != c.want || (err == nil) != (c.want == "hello") || fake.Count(external.OpGet) != c.requests {
				t.Errorf("cut at %d: %q, %v, %d requests", c.cut, got, err, fake.Count(external.OpGet))
			}
			if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("cut at %d: %v", c.cut, err)
			}
		})
	}
}

func TestRetry_BodyFetchedAgainIsOfTheSameETag(t *testing.T) {
	bubble(t, func(t *testing.T, fake *memstore.Store, s external.Store) {
		fake.Set("k", []byte("hello"), nil)
		fake.Inject(memstore.Fault{Op: external.OpGet, Times: 1, Cut: new(int64)})
		r, _, err := s.Get(t.Context(), "k", 0, -1, "")
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		fake.Set("k", []byte("other"), nil)
		for range 2 {
			if got, err := io.ReadAll(r); len(got) != 0 || objcache.KindOf(err) != objcache.Precondition {
				t.Errorf("got %q, %v", got, err)
			}
		}
	})
}
