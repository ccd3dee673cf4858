package bubble

import (
	"fmt"
	"log/slog"
	"testing"
	"time"
)

// Every run of all tests makes these seeds, in this order, as many as fit into the time, and no fewer than the least: enough to notice, and the same for
// every change.
const (
	briefSeeds = 200
	briefLeast = 60
	briefTime  = 75 * time.Second
)

// TestBrief runs seeds that take half a simulated minute.
func TestBrief(t *testing.T) {
	total, end := &Faults{}, time.Now().Add(briefTime)
	seed := uint64(0)
	for seed < briefSeeds && (seed < briefLeast || time.Now().Before(end)) && !t.Failed() {
		seed++
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			again := fmt.Sprintf("go test -count=1 -run 'TestBrief/^%d$' ./server/servertest/bubble", seed)
			runOne(t, Brief(seed), again, slog.LevelDebug, total)
		})
	}
	t.Logf("%d seeds; faults:\n%s", seed, total)
}
