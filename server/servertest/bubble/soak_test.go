//go:build soak

package bubble

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

// TestSeed runs the long seed that OBJCACHE_SEED names, or a range of them (7-99). OBJCACHE_LATE=1 lets requests to the bucket take effect after they
// were given up (DESIGN.md).
func TestSeed(t *testing.T) {
	s := os.Getenv("OBJCACHE_SEED")
	var from, to uint64
	if n, err := fmt.Sscanf(s, "%d-%d", &from, &to); n == 1 {
		to = from
	} else if err != nil {
		t.Fatalf("OBJCACHE_SEED=%q: %v", s, err)
	}
	total := &Faults{}
	for seed := from; seed <= to; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { runOne(t, Draw(seed), seedAgain(seed), slog.LevelDebug, total) })
	}
	t.Logf("faults:\n%s", total)
}

// TestSoak runs new seeds for OBJCACHE_SOAK seconds (make soak), until the first that fails.
func TestSoak(t *testing.T) {
	seconds, err := strconv.Atoi(os.Getenv("OBJCACHE_SOAK"))
	if err != nil {
		t.Fatal(err)
	}
	total, n := &Faults{}, 0
	for end := time.Now().Add(time.Duration(seconds) * time.Second); time.Now().Before(end) && !t.Failed(); n++ {
		seed := rand.Uint64N(1e9)
		t.Run(fmt.Sprint(seed), func(t *testing.T) { runOne(t, Draw(seed), seedAgain(seed), slog.LevelDebug, total) })
	}
	t.Logf("%d seeds; faults:\n%s", n, total)
}

func seedAgain(seed uint64) string {
	late := ""
	if os.Getenv("OBJCACHE_LATE") != "" {
		late = " OBJCACHE_LATE=1"
	}
	return fmt.Sprintf("OBJCACHE_SEED=%d%s go test -tags soak -count=1 -run 'TestSeed$' ./server/servertest/bubble", seed, late)
}
