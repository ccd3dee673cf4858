//go:build failpoints

package failpoint

import (
	"errors"
	"testing"

	"github.com/objcache/objcache"
)

func TestArm_AnErrorComesOnceAtTheNthTime(t *testing.T) {
	if err := Arm("s3.put.before=error@3"); err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		err := Fail(S3PutBefore)
		if want := i == 2; errors.Is(err, objcache.Unavailable) != want {
			t.Errorf("pass %d: %v", i, err)
		}
	}
}

func TestArm_RefusesWhatItDoesNotKnow(t *testing.T) {
	for _, spec := range []string{"nowhere=kill", "log.synced", "log.synced=explode", "log.synced=kill@0", "log.synced=delay(soon)"} {
		if err := Arm(spec); !errors.Is(err, objcache.Invalid) {
			t.Errorf("%s: %v", spec, err)
		}
	}
}
