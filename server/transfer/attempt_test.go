package transfer

import (
	"testing"
	"time"

	"github.com/objcache/objcache/server/external/memstore"
	"github.com/objcache/objcache/server/record"
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
