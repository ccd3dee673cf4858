// Package programs runs other people's programs on mounts and promises to compare what they say. It does not know who made the mounts.
package programs

import (
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// RaiseCounter has four sqlite3 raise one counter, each times, in a database that has one path on each mount. Each keeps the database open all the time:
// locks alone tell them of each other.
func RaiseCounter(t *testing.T, each int, paths ...string) {
	t.Helper()
	sqlite := func(path, sql string) string {
		cmd := exec.CommandContext(t.Context(), "sqlite3", "-batch", path)
		cmd.Stdin = strings.NewReader(".timeout 60000\n" + sql)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%v %s", err, out)
		}
		return strings.TrimSpace(string(out))
	}
	sqlite(paths[0], "pragma journal_mode=delete; create table c(v); create table t(who, n); insert into c values(0);")
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			var sql strings.Builder
			for n := range each {
				fmt.Fprintf(&sql, "begin immediate; update c set v=v+1; insert into t values(%d, %d); commit;\n", i, n)
			}
			if out := sqlite(paths[i%len(paths)], sql.String()); out != "" {
				t.Error(out)
			}
		})
	}
	all.Wait()
	for _, p := range paths {
		if out := sqlite(p, "select v from c; select count(*) from t; pragma integrity_check;"); out != fmt.Sprintf("%d\n%d\nok", 4*each, 4*each) {
			t.Errorf("%s", out)
		}
	}
}
