package bubble

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// TestSeeds runs seeds; OBJCACHE_SEED names one.
func TestSeeds(t *testing.T) {
	from, n := uint64(1), uint64(20)
	level := slog.LevelInfo
	if s := os.Getenv("OBJCACHE_SEED"); s != "" {
		v, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		from, n, level = v, 1, slog.LevelDebug
	}
	if s := os.Getenv("OBJCACHE_SEEDS"); s != "" {
		if _, err := fmt.Sscanf(s, "%d-%d", &from, &n); err != nil {
			t.Fatal(err)
		}
		n = n - from + 1
	}
	total := &Faults{}
	for seed := from; seed < from+n; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			runOne(t, seed, level, total)
		})
	}
	t.Logf("faults:\n%s", total)
}

func runOne(t *testing.T, seed uint64, level slog.Level, total *Faults) {
	set := Draw(seed)
	j := &journal{}
	began := time.Now()
	done := make(chan struct{})
	hang := time.AfterFunc(2*time.Minute, func() {
		file := dump(j, seed)
		panic(fmt.Sprintf("seed %d hangs; its journal is in %s", seed, file))
	})
	res := Run(t, set, level, j)
	close(done)
	hang.Stop()
	total.Merge(res.Faults)
	t.Logf("%v: %v simulated, %v", set, res.Simulated.Round(time.Second), time.Since(began).Round(time.Millisecond))
	if res.Err != nil {
		t.Errorf("%v\njournal: %s\nagain: OBJCACHE_SEED=%d go test -run TestSeeds ./server/servertest/bubble", res.Err, dump(j, seed), seed)
	}
}

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
