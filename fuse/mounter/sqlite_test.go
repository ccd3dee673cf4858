//go:build integration

package mounter_test

import (
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/objcache/objcache/fuse/fusetest"
)

// TestLocks_SqliteOnTwoMountsLosesNoUpdate has programs raise one counter, each with the database open all the time: locks alone tell them of each other.
func TestLocks_SqliteOnTwoMountsLosesNoUpdate(t *testing.T) {
	c := fusetest.New()
	ms := []*mount{mountOn(t, c), mountOn(t, c)}
	sqlite := func(m *mount, sql string) string {
		cmd := exec.CommandContext(t.Context(), "sqlite3", "-batch", m.path("db"))
		cmd.Stdin = strings.NewReader(".timeout 60000\n" + sql)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%v %s", err, out)
		}
		return strings.TrimSpace(string(out))
	}
	sqlite(ms[0], "pragma journal_mode=delete; create table c(v); create table t(who, n); insert into c values(0);")
	const each = 150
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			var sql strings.Builder
			for n := range each {
				fmt.Fprintf(&sql, "begin immediate; update c set v=v+1; insert into t values(%d, %d); commit;\n", i, n)
			}
			if out := sqlite(ms[i%2], sql.String()); out != "" {
				t.Error(out)
			}
		})
	}
	all.Wait()
	for _, m := range ms {
		if out := sqlite(m, "select v from c; select count(*) from t; pragma integrity_check;"); out != fmt.Sprintf("%d\n%d\nok", 4*each, 4*each) {
			t.Errorf("%s", out)
		}
	}
}
