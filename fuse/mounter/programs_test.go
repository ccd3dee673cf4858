//go:build integration

package mounter_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/objcache/objcache/fuse/fusetest"
)

func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

func noise(n int, seed uint64) []byte {
	p := make([]byte, n)
	r := rand.New(rand.NewPCG(seed, seed))
	for i := 0; i+8 <= n; i += 8 {
		v := r.Uint64()
		for k := range 8 {
			p[i+k] = byte(v >> (8 * k))
		}
	}
	return p
}

func TestGit_InitCommitCloneAndFsck(t *testing.T) {
	for mode, change := range modes {
		t.Run(mode, func(t *testing.T) {
			m := mountOn(t, fusetest.New(), change)
			repo := m.path("repo")
			run(t, m.dir, "git", "init", "-q", "repo")
			for i := range 60 {
				must(t, os.WriteFile(filepath.Join(repo, fmt.Sprintf("f%d", i)), noise(1000*(i+1), uint64(i)), 0o644))
			}
			run(t, repo, "git", "add", ".")
			run(t, repo, "git", "commit", "-qm", "one")
			must(t, os.WriteFile(filepath.Join(repo, "f1"), []byte("changed"), 0o644))
			run(t, repo, "git", "commit", "-qam", "two")
			run(t, m.dir, "git", "clone", "-q", "repo", "clone")
			run(t, filepath.Join(m.dir, "clone"), "git", "fsck", "--strict", "--full")
			run(t, repo, "git", "gc", "-q")
			run(t, repo, "git", "fsck", "--strict", "--full")
			if got := run(t, filepath.Join(m.dir, "clone"), "git", "status", "--porcelain"); got != "" {
				t.Errorf("clone is not clean: %q", got)
			}
		})
	}
}

func TestSqlite_TransactionsSurviveRemount(t *testing.T) {
	for _, journal := range []string{"delete", "truncate", "persist"} {
		t.Run(journal, func(t *testing.T) {
			c := fusetest.New()
			m := mountOn(t, c)
			run(t, m.dir, "sqlite3", "db", "pragma journal_mode="+journal+"; create table t(a integer primary key, b text);"+
				"with recursive n(i) as (select 1 union all select i+1 from n where i<5000) insert into t select i, hex(randomblob(100)) from n;"+
				"update t set b='x' where a%7=0; delete from t where a%3=0; vacuum;")
			must(t, m.end())
			m = mountOn(t, c)
			if got := strings.TrimSpace(run(t, m.dir, "sqlite3", "db", "pragma integrity_check; select count(*) from t; select count(*) from t where b='x';")); got != "ok\n3334\n476" {
				t.Errorf("database says %q", got)
			}
		})
	}
}

func TestTar_UnpacksWhatItPacked(t *testing.T) {
	c := fusetest.New()
	m := mountOn(t, c)
	src := filepath.Join(t.TempDir(), "src")
	must(t, os.MkdirAll(filepath.Join(src, "d", "e"), 0o755))
	for i := range 200 {
		must(t, os.WriteFile(filepath.Join(src, "d", fmt.Sprintf("f%d", i)), noise(i*331, uint64(i)), os.FileMode(0o600+i%64)))
	}
	must(t, os.WriteFile(filepath.Join(src, "d", "e", "big"), noise(9<<20, 1), 0o644))
	must(t, os.Symlink("d/f1", filepath.Join(src, "link")))
	must(t, os.Link(filepath.Join(src, "d", "f2"), filepath.Join(src, "hard")))
	run(t, filepath.Dir(src), "tar", "cf", m.path("a.tar"), "src")
	run(t, m.dir, "tar", "xpf", "a.tar")
	run(t, m.dir, "tar", "df", "a.tar") // compares contents, modes, times and links
	run(t, m.dir, "diff", "-r", "src", src)
	must(t, m.end())
	m = mountOn(t, c)
	run(t, m.dir, "tar", "df", "a.tar")
	run(t, m.dir, "rm", "-r", "src")
	if _, err := os.Stat(m.path("src")); !os.IsNotExist(err) {
		t.Errorf("src after rm -r: %v", err)
	}
}

func TestCp_SparseAndLargeFilesAreEqual(t *testing.T) {
	m := mountOn(t, fusetest.New())
	want := noise(37<<20+123, 9)
	must(t, os.WriteFile(m.path("a"), want, 0o644))
	run(t, m.dir, "cp", "a", "b")
	run(t, m.dir, "cmp", "a", "b")
	run(t, m.dir, "dd", "if=a", "of=b", "bs=3000", "count=100", "seek=5000", "conv=notrunc", "status=none")
	copy(want[3000*5000:], want[:300000])
	got, err := os.ReadFile(m.path("b"))
	must(t, err)
	if !bytes.Equal(got, want) {
		t.Error("b differs after a partial overwrite")
	}
}
