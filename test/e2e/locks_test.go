//go:build integration

package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/objcache/objcache/fuse"
	"github.com/objcache/objcache/server"
	"github.com/objcache/objcache/test/wait"
)

// TestLocks_FlockAndFcntlHoldAcrossMounts uses flock(1), and fcntl(2) of this process: each mount is a session of its own.
func TestLocks_FlockAndFcntlHoldAcrossMounts(t *testing.T) {
	m := newMounted(t, "auto")
	other := filepath.Join(m.mount("auto", fuse.CloseToOpen), "data")
	a, err := os.Create(filepath.Join(m.dir, "f"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.OpenFile(filepath.Join(other, "f"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	lock := func(f *os.File, typ int16, start, n int64) error {
		return unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: typ, Start: start, Len: n})
	}
	for _, step := range []struct {
		f        *os.File
		typ      int16
		start, n int64
		want     error
	}{
		{a, unix.F_WRLCK, 0, 10, nil}, {b, unix.F_RDLCK, 5, 1, unix.EAGAIN}, {b, unix.F_WRLCK, 10, 0, nil}, {a, unix.F_WRLCK, 1 << 40, 1, unix.EAGAIN},
		{a, unix.F_RDLCK, 0, 10, nil}, {b, unix.F_RDLCK, 0, 10, nil}, {a, unix.F_WRLCK, 0, 1, unix.EAGAIN}, {b, unix.F_UNLCK, 0, 0, nil}, {a, unix.F_WRLCK, 0, 0, nil},
	} {
		if err := lock(step.f, step.typ, step.start, step.n); !errors.Is(err, step.want) {
			t.Errorf("%+v: %v", step, err)
		}
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if err := lock(b, unix.F_WRLCK, 0, 0); err != nil {
		t.Errorf("after the other's close: %v", err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	// flock(1) gives its lock to the command that it becomes, with the descriptor.
	holder := exec.CommandContext(t.Context(), "flock", "--no-fork", "-x", filepath.Join(m.dir, "f"), "sleep", "60")
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	try := func() error {
		return exec.CommandContext(t.Context(), "flock", "-n", "-s", filepath.Join(other, "f"), "true").Run()
	}
	wait.Until(t, 10*time.Second, "flock is held", func() bool { return try() != nil })
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := holder.Wait(); err == nil {
		t.Error("the holder was not killed")
	}
	wait.Until(t, 10*time.Second, "its death gives the lock back", func() bool { return try() == nil })
}

// TestLocks_SqliteOnTwoMountsLosesNoUpdate has programs raise one counter, each with the database open all the time.
func TestLocks_SqliteOnTwoMountsLosesNoUpdate(t *testing.T) {
	m := newMounted(t, "auto", func(c *server.Config) { c.FlushInterval = server.Duration(300 * time.Millisecond) }) // it is persisted meanwhile
	dirs := []string{m.dir, filepath.Join(m.mount("auto", fuse.CloseToOpen), "data")}
	sqlite := func(dir, sql string) string {
		cmd := exec.CommandContext(t.Context(), "sqlite3", "-batch", filepath.Join(dir, "db"))
		cmd.Stdin = strings.NewReader(".timeout 60000\n" + sql)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%v %s", err, out)
		}
		return strings.TrimSpace(string(out))
	}
	sqlite(dirs[0], "pragma journal_mode=delete; create table c(v); create table t(who, n); insert into c values(0);")
	const each = 60
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			var sql strings.Builder
			for n := range each {
				fmt.Fprintf(&sql, "begin immediate; update c set v=v+1; insert into t values(%d, %d); commit;\n", i, n)
			}
			if out := sqlite(dirs[i%2], sql.String()); out != "" {
				t.Error(out)
			}
		})
	}
	all.Wait()
	for _, d := range dirs {
		if out := sqlite(d, "select v from c; select count(*) from t; pragma integrity_check;"); out != fmt.Sprintf("%d\n%d\nok", 4*each, 4*each) {
			t.Errorf("%s", out)
		}
	}
}
