package chunk

import (
	"testing"
	"testing/synctest"
	"time"
)

// A disk that others had filled once, long ago, is no reason to refuse at once.
func TestBudget_PatienceBeginsAnewAfterTheDiskHadRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(100*mib, 10*time.Second)
		take := func(n int64) error { return b.takeDirty(t.Context(), n) }
		if err := take(90 * mib); err != nil {
			t.Fatal(err)
		}
		b.Disk(0)
		if err := take(mib); err == nil {
			t.Fatal("taken from a full disk")
		}
		b.Disk(1 << 40)
		time.Sleep(time.Hour)
		if err := take(5 * mib); err != nil {
			t.Fatal(err)
		}
		go func() {
			time.Sleep(5 * time.Second)
			b.giveDirty(2 * mib)
		}()
		if err := take(mib); err != nil {
			t.Error("refused while dirty bytes were about to come back:", err)
		}
	})
}
