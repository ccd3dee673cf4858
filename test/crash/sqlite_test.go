//go:build integration

package crash

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	sqliteTime  = 15 * time.Second
	sqliteLease = "2s"
)

// shell is the sqlite3 program on one database, opened once: from then on only locks tell it that somebody else has changed the file.
type shell struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	err *strings.Builder
}

func openShell(db string) (*shell, error) {
	s := &shell{cmd: exec.CommandContext(context.Background(), "sqlite3", "-batch", db), err: &strings.Builder{}}
	var err error
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s.out, s.cmd.Stderr = bufio.NewReader(out), s.err
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	return s, nil
}

// do runs statements and returns what they printed, up to the mark that is printed behind them.
func (s *shell) do(sql string) ([]string, error) {
	const mark = "=done="
	if _, err := fmt.Fprintf(s.in, "%s\nselect '%s';\n", sql, mark); err != nil {
		return nil, err
	}
	var lines []string
	for {
		l, err := s.out.ReadString('\n')
		if err != nil {
			return lines, fmt.Errorf("sqlite3 ended: %w", err)
		}
		if l = strings.TrimSpace(l); l == mark {
			return lines, nil
		}
		lines = append(lines, l)
	}
}

func (s *shell) close() string {
	_ = s.in.Close()
	done := time.AfterFunc(stepMax, func() { _ = s.cmd.Process.Kill() })
	defer done.Stop()
	_ = s.cmd.Wait() // what it says at its end is in err
	return s.err.String()
}

// writer commits small transactions and notes which were acknowledged.
type writer struct {
	name  string
	db    string
	next  int
	acked []int
	errs  []string
	said  []string // when, and what the counter was then
}

// run works until ctx ends, or its mount dies.
func (w *writer) run(ctx context.Context) error {
	s, err := openShell(w.db)
	if err != nil {
		return err
	}
	defer func() { w.errs = append(w.errs, s.close()) }()
	if _, err := s.do(".log stderr\n.timeout 20000\npragma journal_mode=delete; pragma synchronous=full;"); err != nil {
		return err
	}
	for ctx.Err() == nil {
		w.next++
		// sqlite3 goes on after an error: a transaction whose commit failed is rolled back before anybody looks whether it is there.
		out, err := s.do(fmt.Sprintf(
			"begin immediate; insert into t values('%[1]s', %[2]d, hex(randomblob(200))); update c set v = v + 1; commit;\nrollback;\nselect 'ok', v from t, c where who='%[1]s' and n=%[2]d;",
			w.name, w.next))
		if err != nil {
			return err
		}
		if len(out) == 1 && strings.HasPrefix(out[0], "ok|") {
			w.acked = append(w.acked, w.next)
			w.said = append(w.said, time.Now().Format("05.000 ")+w.name+" "+out[0])
		}
	}
	return nil
}

// check compares the database with what was acknowledged.
func checkDatabase(t *testing.T, db string, ws []*writer) {
	t.Helper()
	s, err := openShell(db)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(sql string) []string {
		t.Helper()
		out, err := s.do(sql)
		if err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		return out
	}
	ask(".timeout 20000")
	if out := ask("pragma integrity_check;"); len(out) != 1 || out[0] != "ok" {
		t.Errorf("integrity_check: %q", out)
	}
	if out := ask("select (select count(*) from t) - (select v from c);"); len(out) != 1 || out[0] != "0" {
		t.Errorf("rows less the counter that each transaction raises: %q", out)
	}
	for _, w := range ws {
		there := map[string]bool{}
		for _, l := range ask(fmt.Sprintf("select n from t where who='%s';", w.name)) {
			there[l] = true
		}
		for _, n := range w.acked {
			if !there[fmt.Sprint(n)] {
				t.Errorf("%s: transaction %d was acknowledged and is lost", w.name, n)
			}
		}
		t.Logf("%s: %d transactions acknowledged, %d rows", w.name, len(w.acked), len(there))
	}
	if words := s.close(); words != "" {
		t.Errorf("sqlite3 says: %s", words)
	}
}

// TestSqlite_TwoMountsAndKills commits small transactions to one database from two mounts, with its rollback journal, while servers and one of the mounts
// are killed.
func TestSqlite_TwoMountsAndKills(t *testing.T) {
	seed := number(t, "OBJCACHE_SEED", 41)
	long := time.Duration(number(t, "OBJCACHE_SQLITE_SECONDS", uint64(sqliteTime/time.Second))) * time.Second
	path := build(t, "")
	l := newLauncher(t)
	c := newCluster(t, l, path)
	c.must("up", "--flush-interval", "2s", "--capacity", "1GiB", "--session-lease", sqliteLease)
	second := t.TempDir()
	c.must("mount", second)
	// A second mount may be the one that dies; its mountpoint is taken away whatever happens.
	t.Cleanup(func() { _ = unix.Unmount(second, unix.MNT_DETACH) })

	db := func(mnt string) string { return filepath.Join(mnt, bucket, "db") }
	out, err := l.run("sqlite3", db(c.mnt()), "pragma journal_mode=delete; create table t(who, n, x, primary key(who, n)); create table c(v); insert into c values(0);")
	if err != nil {
		t.Fatalf("%v %s", err, out)
	}
	ws := []*writer{{name: "a", db: db(c.mnt())}, {name: "b", db: db(c.mnt())}, {name: "c", db: db(second)}, {name: "d", db: db(second)}}
	rng := rand.New(rand.NewPCG(seed, 2000))
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	died := make(chan struct{})
	var wg sync.WaitGroup
	errs := make([]error, len(ws))
	for i, w := range ws {
		wg.Go(func() { errs[i] = w.run(ctx) })
	}
	m := &monkey{c: c, rng: rng}
	for m.pause(ctx, 2500) {
		if rng.IntN(3) == 0 {
			select {
			case <-died:
			default:
				m.log = append(m.log, time.Now().Format("05.000 ")+"kill mount")
				if err := syscall.Kill(mountPID(t, c, second), syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				close(died)
				continue
			}
		}
		if err := m.kill(ctx, fmt.Sprintf("server-%d", rng.IntN(3))); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	wg.Wait()
	t.Logf("seed %d, kills %q", seed, m.log)
	for i, w := range ws {
		if errs[i] != nil && strings.HasPrefix(w.db, c.mnt()) {
			t.Errorf("%s: %v; %v", w.name, errs[i], w.errs)
		}
		for _, words := range w.errs {
			for _, bad := range []string{"malformed", "not a database", "I/O error"} {
				if strings.HasPrefix(w.db, c.mnt()) && strings.Contains(words, bad) {
					t.Errorf("%s: sqlite3 says: %s", w.name, words)
				}
			}
		}
	}
	t.Cleanup(func() {
		if t.Failed() {
			var all []string
			for _, w := range ws {
				all = append(all, w.said...)
			}
			slices.Sort(all)
			t.Logf("acknowledged: %q", all)
		}
	})
	checkDatabase(t, db(c.mnt()), ws)
	if _, err := os.Stat(second); err != nil { // its process is gone: another one, with the same cache, sees the same
		_ = unix.Unmount(second, unix.MNT_DETACH)
	}
	c.must("up")
	checkDatabase(t, db(second), ws)
	if left, _ := filepath.Glob(filepath.Join(c.mnt(), bucket, "*conflict*")); len(left) > 0 {
		t.Logf("set aside: %q", left)
	}
}

func mountPID(t *testing.T, c *cluster, mountpoint string) int {
	t.Helper()
	st, err := c.status()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range st.Mounts {
		if m.Mountpoint == mountpoint && m.PID > 0 {
			return m.PID
		}
	}
	t.Fatalf("no process of %s in %+v", mountpoint, st.Mounts)
	return 0
}
