//go:build integration

// Package e2e runs real programs on real mounts of whole clusters with a real S3 server.
package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/objcache/objcache/fuse"
	"github.com/objcache/objcache/fuse/mounter"
	"github.com/objcache/objcache/server"
	"github.com/objcache/objcache/server/servertest"
	"github.com/objcache/objcache/test/s3server"
)

// mounted is a cluster with one mount.
type mounted struct {
	t   *testing.T
	cl  *servertest.Cluster
	dir string // of the bucket
}

func newMounted(t *testing.T, passthrough string, change ...func(*server.Config)) *mounted {
	t.Helper()
	gw := s3server.Versitygw(t, "bucket")
	m := &mounted{t: t}
	all := func(c *server.Config) {
		for _, f := range change {
			f(c)
		}
	}
	m.cl = servertest.Start(t, servertest.Config{Servers: 3, Change: all, Buckets: []server.Bucket{{
		DirName: "data", BucketName: gw.S3.Bucket, Endpoint: gw.S3.Endpoint, AccessKey: gw.S3.AccessKey, SecretKey: gw.S3.SecretKey, Region: gw.S3.Region,
	}}})
	m.dir = filepath.Join(m.mount(passthrough, fuse.CloseToOpen), "data")
	return m
}

func (m *mounted) mount(passthrough string, c fuse.Consistency) string {
	m.t.Helper()
	cfg := mounter.Default()
	cfg.Mountpoint, cfg.CacheDir, cfg.Passthrough, cfg.Consistency = m.t.TempDir(), m.t.TempDir(), passthrough, c
	live, err := mounter.Mount(m.t.Context(), cfg, m.cl.Client(), servertest.Logger(m.t))
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := live.Unmount(ctx); err != nil {
			m.t.Errorf("unmount: %v", err)
			if err := live.Abort(); err != nil {
				m.t.Errorf("abort: %v", err)
			}
		}
	})
	return cfg.Mountpoint
}

// sh runs a script in a directory; the script ends at the first failing command.
func (m *mounted) sh(dir, script string) string {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), 2*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script)
	c.Dir = dir
	c.Env = append(os.Environ(), "HOME="+m.t.TempDir(), "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com",
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
	out, err := c.CombinedOutput()
	if err != nil {
		m.t.Fatalf("%v\n%s", err, out)
	}
	return strings.TrimSpace(string(out))
}

func TestPrograms_GitTarSqliteCpRun(t *testing.T) {
	for _, passthrough := range []string{"auto", "off"} {
		t.Run("passthrough "+passthrough, func(t *testing.T) {
			m := newMounted(t, passthrough)
			for name, script := range map[string]string{
				"git": `git init -q r; cd r; for i in $(seq 50); do mkdir -p d$((i%7)); echo $i > d$((i%7))/f$i; done; git add -A; git commit -qm one
					echo more >> d1/f1; git commit -qam two; cd ..; git clone -q r c; cd c; git fsck --strict; test -z "$(git status --porcelain)"; git log --oneline | wc -l | grep -qx 2`,
				"tar":    `mkdir src; for i in $(seq 200); do head -c $((i*97)) /dev/urandom > src/$i; done; ln -s 1 src/link; tar cf t.tar src; mkdir x; tar xf t.tar -C x; diff -r src x/src`,
				"sqlite": `sqlite3 db 'create table t(a,b); begin; insert into t select value, hex(randomblob(50)) from generate_series(1,2000); commit; pragma integrity_check; select count(*) from t' | tail -1 | grep -qx 2000; sqlite3 db 'pragma journal_mode=delete; update t set b=1 where a%2=0; select count(*) from t where b=1' | tail -1 | grep -qx 1000`,
				"cp":     `cp -r /usr/include/linux lin; diff -r /usr/include/linux lin; mv lin lin2; diff -r /usr/include/linux lin2; rm -r lin2; test ! -e lin2`,
				"dd":     `dd if=/dev/urandom of=big bs=1M count=70 status=none; sha256sum big > sum; dd if=/dev/urandom of=big bs=4k seek=1000 count=3 conv=notrunc status=none; sha256sum big > sum2; ! cmp -s sum sum2; cp big big2; cmp big big2`,
				"python": "python3 - <<'E'\nimport os, mmap\nf=open('p','w+b'); f.write(b'x'*100000); f.flush(); m=mmap.mmap(f.fileno(),0); m[5]=65; m.flush(); m.close(); f.close()\nassert open('p','rb').read()[:7]==b'xxxxxAx'\nos.truncate('p',10); os.truncate('p',20); assert open('p','rb').read()==b'xxxxxAxxxx'+b'\\0'*10\nfd=os.open('p',os.O_RDONLY); os.unlink('p'); assert os.read(fd,3)==b'xxx'\nE",
			} {
				t.Run(name, func(t *testing.T) {
					sub := *m
					sub.t = t
					d := filepath.Join(m.dir, name)
					if err := os.Mkdir(d, 0o755); err != nil {
						t.Fatal(err)
					}
					start := time.Now()
					sub.sh(d, script)
					t.Logf("%s took %v", name, time.Since(start))
				})
			}
		})
	}
}
