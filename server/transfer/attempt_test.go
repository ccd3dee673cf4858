package transfer

import (
	"bytes"
	"testing"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/external"
	"github.com/objcache/objcache/server/external/memstore"
	"github.com/objcache/objcache/server/record"
	"github.com/objcache/objcache/server/txn"
)

func TestSweep_AbortsOnlyUploadsOfTheKeySinceTheIntent(t *testing.T) {
	for name, c := range map[string]struct {
		started time.Time
		left    int
	}{
		"begun after the intent":  {time.Now().Add(-time.Hour), 1},
		"begun before the intent": {time.Now().Add(time.Hour), 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := memstore.New(memstore.Config{})
			for _, key := range []string{"a", "a/b"} {
				if _, err := s.CreateUpload(t.Context(), key, nil); err != nil {
					t.Fatal(err)
				}
			}
			a := &attempt{store: s, it: &record.Intent{Key: "a", Started: c.started.UnixNano()}}
			if err := a.sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			if ups := s.Uploads(); len(ups) != c.left {
				t.Errorf("left: %v", ups)
			}
		})
	}
}

// A store that takes a body that broke off for a whole one, as versitygw does, keeps the metadata of our upload with some of its bytes.
func TestLook_AnObjectThatBrokeOffIsNotOurs(t *testing.T) {
	for _, c := range []struct {
		body string
		gone bool
		want txn.UploadOutcome
	}{{"whole", false, txn.Ours}, {"who", false, txn.Absent}, {"whole", true, txn.Ours}, {"who", true, txn.Absent}} {
		s := memstore.New(memstore.Config{})
		it := &record.Intent{Key: "k", Tx: &record.TxID{Client: 7, Seq: 1, TxSeq: 3}, Size: 5, IfMatch: "before"}
		etag, err := s.Put(t.Context(), "k", bytes.NewReader([]byte(c.body)), map[string]string{metaTx: txString(it.GetTx())}, external.Condition{})
		if err != nil {
			t.Fatal(err)
		}
		a := &attempt{store: s, it: it, gone: c.gone}
		got, err := a.look(t.Context())
		if err != nil || got != c.want {
			t.Errorf("%+v: %v, %v", c, got, err)
		}
		if c.want == txn.Absent && it.GetIfMatch() != etag {
			t.Errorf("%+v: the next attempt would be over %q, not over %q", c, it.GetIfMatch(), etag)
		}
		_, err = s.Head(t.Context(), "k")
		if left := objcache.KindOf(err) != objcache.NotExist; left != (c.want == txn.Ours || !c.gone) {
			t.Errorf("%+v: the object is there: %v", c, left)
		}
	}
}
