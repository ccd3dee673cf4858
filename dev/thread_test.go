package dev

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/objcache/objcache/test/wait"
)

const leaderEnv = "OBJCACHE_TEST_LEADER_ENDS"

// Run as a child, this program ends its first thread and lives on in others, as every program does for a moment while it is being killed.
func init() {
	if os.Getenv(leaderEnv) == "" {
		return
	}
	runtime.LockOSThread() // of init: the first thread
	go func() { select {} }()
	_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT, 0, 0, 0)
}

func TestProcess_RunsUntilItsLastThreadIsGone(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	d, err := launch(filepath.Join(t.TempDir(), "p"), []string{leaderEnv + "=1"}, self)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(d.PID, syscall.SIGKILL) }) // running, but for this test's failure
	wait.Until(t, 10*time.Second, "the first thread's end", func() bool {
		w := stat(fmt.Sprintf("/proc/%d/task/%d/stat", d.PID, d.PID))
		return len(w) > 0 && over(w[0])
	})
	if !d.running() {
		t.Error("a process whose other threads still hold its files counts as gone")
	}
	if err := d.kill(); err != nil || d.running() {
		t.Errorf("after SIGKILL: %v, running %t", err, d.running())
	}
}
