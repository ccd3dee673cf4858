package main

import (
	"context"
	"os"

	"github.com/objcache/objcache/test/s3server"
)

// s3fsOptions are those that its manual recommends for speed: names and their absence remembered for long, large parts, many at a time.
// use_cache is off, as by default: it keeps files between opens and makes the first read and every write slower.
var s3fsOptions = []string{
	"use_path_request_style", "stat_cache_expire=86400", "max_stat_cache_size=1000000", "enable_noobj_cache", "parallel_count=16",
	"multipart_size=16", "multireq_max=64", "list_object_max_keys=1000", "listobjectsv2",
}

// mountS3fs mounts a bucket at a new directory.
func (e *env) mountS3fs(ctx context.Context, name, bucket, url string) (string, error) {
	dir, tmp, passwd := e.disk(name), e.disk(name+"-tmp"), e.disk(name+".passwd")
	for _, d := range []string{dir, tmp} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return "", err
		}
	}
	if err := os.WriteFile(passwd, []byte(s3server.AccessKey+":"+s3server.SecretKey+"\n"), 0o600); err != nil {
		return "", err
	}
	args := []string{bucket, dir, "-f", "-o", "url=" + url, "-o", "passwd_file=" + passwd, "-o", "tmpdir=" + tmp}
	for _, o := range s3fsOptions {
		args = append(args, "-o", o)
	}
	p, err := start(name, e.dir, "s3fs", args...)
	if err != nil {
		return "", err
	}
	e.down.add("stop "+name, p.stop)
	e.down.add("unmount "+dir, unmount(dir))
	e.pids[name] = p.cmd.Process.Pid
	return dir, p.ready(ctx, func() bool { m, ok := mountedAt(dir); return ok && m.kind == "fuse.s3fs" })
}
