package bubble

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// hung is when a bubble must be standing still, whose clock moves only while everybody waits.
const hung = 3 * time.Minute

func runOne(t *testing.T, set Settings, again string, level slog.Level, total *Faults) {
	t.Helper()
	set.Late = os.Getenv("OBJCACHE_LATE") != ""
	j, began := &journal{}, time.Now()
	hang := time.AfterFunc(hung, func() {
		panic(fmt.Sprintf("seed %d hangs; journal: %s; again: %s", set.Seed, dump(j, set.Seed), again))
	})
	defer hang.Stop()
	res := Run(t, set, level, j)
	total.Merge(res.Faults)
	t.Logf("%v: %v simulated, %v", set, res.Simulated.Round(time.Second), time.Since(began).Round(time.Millisecond))
	if res.Err != nil {
		t.Errorf("%v\njournal: %s\nagain: %s", res.Err, dump(j, set.Seed), again)
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
