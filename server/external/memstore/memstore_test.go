package memstore_test

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
)

func TestContract(t *testing.T) {
	externaltest.Run(t, func(*testing.T) external.Store { return memstore.New(memstore.Config{}) })
}

func TestContract_PoorStore(t *testing.T) {
	externaltest.Run(t, func(*testing.T) external.Store {
		return memstore.New(memstore.Config{CompleteTwice: true, Ignores: external.Capabilities{
			ConditionalPut: true, ConditionalComplete: true, CopyPart: true, CopyIfMatch: true,
		}})
	})
}

func put(t *testing.T, s external.Store, key, data string) error {
	t.Helper()
	_, err := s.Put(t.Context(), key, strings.NewReader(data), nil, external.Condition{})
	return err
}

func TestProbe_FindsWhatTheStoreHonoursAndLeavesNothing(t *testing.T) {
	all := external.Capabilities{ConditionalPut: true, ConditionalComplete: true, CopyPart: true, CopyIfMatch: true}
	for name, c := range map[string]struct{ ignores, want external.Capabilities }{
		"all":             {want: all},
		"none":            {ignores: all},
		"no put":          {external.Capabilities{ConditionalPut: true}, external.Capabilities{ConditionalComplete: true, CopyPart: true, CopyIfMatch: true}},
		"no complete":     {external.Capabilities{ConditionalComplete: true}, external.Capabilities{ConditionalPut: true, CopyPart: true, CopyIfMatch: true}},
		"no copyIfMatch ": {external.Capabilities{CopyIfMatch: true}, external.Capabilities{ConditionalPut: true, ConditionalComplete: true, CopyPart: true}},
	} {
		s := memstore.New(memstore.Config{Ignores: c.ignores})
		got, err := external.Probe(t.Context(), s, ".objcache/")
		if err != nil || got != c.want {
			t.Errorf("%s: got %+v (%v), want %+v", name, got, err, c.want)
		}
		if len(s.Objects()) != 0 || len(s.Uploads()) != 0 {
			t.Errorf("%s: left %d objects, %d uploads", name, len(s.Objects()), len(s.Uploads()))
		}
	}
}

func TestProbe_ReadOnlyBucketHasNoCapabilitiesAndIsNoError(t *testing.T) {
	s := memstore.New(memstore.Config{})
	s.Inject(memstore.Fault{Before: objcache.Errorf(objcache.Permission, "read-only"), Match: func(r memstore.Request) bool { return r.Op.Mutates() }})
	got, err := external.Probe(t.Context(), s, ".objcache/")
	if err != nil || got != (external.Capabilities{}) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestProbe_StoreOutOfReachIsAnError(t *testing.T) {
	for skip := range 12 {
		s := memstore.New(memstore.Config{})
		s.Inject(memstore.Fault{Skip: skip, Times: 1, Before: memstore.Unavailable})
		got, err := external.Probe(t.Context(), s, ".objcache/")
		if objcache.KindOf(err) != objcache.Unavailable || got != (external.Capabilities{}) {
			t.Errorf("request %d fails: got %+v, %v", skip, got, err)
		}
	}
}

func TestFault_BeforeHasNoEffectAfterHas(t *testing.T) {
	s := memstore.New(memstore.Config{})
	s.Inject(memstore.Fault{Op: external.OpPut, Times: 1, Before: memstore.Unavailable})
	if err := put(t, s, "k", "1"); objcache.KindOf(err) != objcache.Unavailable || len(s.Objects()) != 0 {
		t.Errorf("before: %v, %v", err, s.Objects())
	}
	s.Inject(memstore.Fault{Op: external.OpPut, Times: 1, After: memstore.Unavailable})
	if err := put(t, s, "k", "2"); objcache.KindOf(err) != objcache.Unavailable || string(s.Objects()["k"]) != "2" {
		t.Errorf("after: %v, %v", err, s.Objects())
	}
	if err := put(t, s, "k", "3"); err != nil || s.Count(external.OpPut) != 3 {
		t.Errorf("then: %v, %d requests", err, s.Count(external.OpPut))
	}
}

func TestFault_MatchSkipAndRemove(t *testing.T) {
	s := memstore.New(memstore.Config{})
	remove := s.Inject(memstore.Fault{Match: func(r memstore.Request) bool { return r.Key == "bad" }, Skip: 1, Before: memstore.Unavailable})
	var got []bool
	for range 3 {
		got = append(got, put(t, s, "good", "") == nil, put(t, s, "bad", "") == nil)
	}
	remove()
	got = append(got, put(t, s, "bad", "") == nil)
	want := []bool{true, true, true, false, true, false, true}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("got %v, want %v", got, want)
		}
	}
}

func TestFault_CutBody(t *testing.T) {
	s := memstore.New(memstore.Config{})
	s.Set("k", []byte("hello"), nil)
	cut := int64(2)
	s.Inject(memstore.Fault{Op: external.OpGet, Times: 1, Cut: &cut})
	r, _, err := s.Get(t.Context(), "k", 0, -1, "")
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	if string(got) != "he" || !errors.Is(err, io.ErrUnexpectedEOF) || objcache.KindOf(err) != objcache.Unavailable {
		t.Errorf("got %q, %v", got, err)
	}
	if read, _ := s.Bytes(); read != 2 {
		t.Errorf("%d bytes read", read)
	}
}

func TestFault_HookAndDelayRunWithoutLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Config{})
		s.Inject(memstore.Fault{Op: external.OpHead, Delay: time.Hour, Hook: func(context.Context, memstore.Request) error {
			s.Set("k", []byte("from the hook"), nil)
			return nil
		}})
		start := time.Now()
		obj, err := s.Head(t.Context(), "k")
		if err != nil || obj.Size != 13 || time.Since(start) != time.Hour {
			t.Errorf("got %+v, %v after %v", obj, err, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := s.Head(ctx, "k"); objcache.KindOf(err) != objcache.Unavailable || time.Since(start) != time.Hour+time.Minute {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
	})
}

func TestSetAndRemove_AreNotRequests(t *testing.T) {
	s := memstore.New(memstore.Config{})
	s.Inject(memstore.Fault{Before: memstore.Unavailable})
	etag := s.Set("k", []byte("x"), map[string]string{"a": "b"})
	s.Remove("gone")
	if len(s.Counts()) != 0 || etag == "" || len(s.Objects()) != 1 {
		t.Errorf("%v requests, ETag %q, %v", s.Counts(), etag, s.Objects())
	}
	s.Remove("k")
	if len(s.Objects()) != 0 {
		t.Errorf("left %v", s.Objects())
	}
}
