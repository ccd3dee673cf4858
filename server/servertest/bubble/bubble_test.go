package bubble

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// Every run of all tests makes these seeds, in this order, as many as fit into the time: enough to notice, and the same for every change.
const (
	briefSeeds = 300
	briefTime  = 75 * time.Second
)

// TestBrief runs seeds that take half a simulated minute.
func TestBrief(t *testing.T) {
	total, end := &Faults{}, time.Now().Add(briefTime)
	seed := uint64(0)
	for seed < briefSeeds && time.Now().Before(end) && !t.Failed() {
		seed++
		t.Run(fmt.Sprint(seed), func(t *testing.T) { runOne(t, Brief(seed), "TestBrief", slog.LevelInfo, total) })
	}
	t.Logf("%d seeds; faults:\n%s", seed, total)
}

// TestSeed runs the long seed that OBJCACHE_SEED names, or a range of them (7-99), or one. OBJCACHE_LATE=1 lets requests to the bucket take effect
// after they were given up (DESIGN.md).
func TestSeed(t *testing.T) {
	from, to, level := uint64(1), uint64(1), slog.LevelInfo
	if s := os.Getenv("OBJCACHE_SEED"); s != "" {
		if _, err := fmt.Sscanf(s, "%d-%d", &from, &to); err != nil {
			if from, err = strconv.ParseUint(s, 10, 64); err != nil {
				t.Fatal(err)
			}
			to, level = from, slog.LevelDebug
		}
	}
	total := &Faults{}
	for seed := from; seed <= to; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { runOne(t, Draw(seed), "TestSeed", level, total) })
	}
	t.Logf("faults:\n%s", total)
}

// TestSoak runs new seeds for OBJCACHE_SOAK seconds (make soak), until the first that fails.
func TestSoak(t *testing.T) {
	seconds, err := strconv.Atoi(os.Getenv("OBJCACHE_SOAK"))
	if err != nil {
		seconds = 1
	}
	total, n := &Faults{}, 0
	for end := time.Now().Add(time.Duration(seconds) * time.Second); time.Now().Before(end) && !t.Failed(); n++ {
		seed := rand.Uint64N(1e9)
		t.Run(fmt.Sprint(seed), func(t *testing.T) { runOne(t, Draw(seed), "TestSeed", slog.LevelInfo, total) })
	}
	t.Logf("%d seeds; faults:\n%s", n, total)
}

// hung is when a bubble must be standing still, whose clock moves only while everybody waits.
const hung = 3 * time.Minute

func runOne(t *testing.T, set Settings, test string, level slog.Level, total *Faults) {
	t.Helper()
	set.Late = os.Getenv("OBJCACHE_LATE") != ""
	j, began := &journal{}, time.Now()
	again := fmt.Sprintf("again: OBJCACHE_SEED=%d go test -count=1 -run '%s$' ./server/servertest/bubble", set.Seed, test)
	if test == "TestBrief" {
		again = fmt.Sprintf("again: go test -count=1 -run 'TestBrief/%d$' ./server/servertest/bubble", set.Seed)
	}
	hang := time.AfterFunc(hung, func() { panic(fmt.Sprintf("seed %d hangs; journal: %s; %s", set.Seed, dump(j, set.Seed), again)) })
	defer hang.Stop()
	res := Run(t, set, level, j)
	total.Merge(res.Faults)
	t.Logf("%v: %v simulated, %v", set, res.Simulated.Round(time.Second), time.Since(began).Round(time.Millisecond))
	if res.Err != nil {
		t.Errorf("%v\njournal: %s\n%s", res.Err, dump(j, set.Seed), again)
	}
}

// dump writes a journal to OBJCACHE_JOURNALS, or where temporary files go, and returns the file's name.
func dump(j *journal, seed uint64) string {
	dir := os.Getenv("OBJCACHE_JOURNALS")
	if dir == "" {
		dir = os.TempDir()
	}
	file := filepath.Join(dir, fmt.Sprintf("objcache-seed-%d.log", seed))
	if err := os.WriteFile(file, []byte(j.String()), 0o600); err != nil {
		return err.Error()
	}
	return file
}
