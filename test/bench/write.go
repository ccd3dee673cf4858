package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

func writes(ctx context.Context, e *env, add func(row)) error {
	s3fs, err := e.mountS3fs(ctx, "s3fs-write", direct, e.s3.S3.Endpoint)
	if err != nil {
		return err
	}
	ours := filepath.Join(e.cluster.mnt, direct)
	var nOurs, nS3fs, nExt4, persisted numbers
	for i := range e.runs {
		for _, w := range []struct {
			path string
			into *numbers
			sync bool
		}{
			{e.disk("ext4-write"), &nExt4, true},
			{filepath.Join(ours, fmt.Sprintf("write-%d", i)), &nOurs, false},
			{filepath.Join(s3fs, fmt.Sprintf("s3fs-write-%d", i)), &nS3fs, false},
		} {
			took, err := e.writeOnce(w.path, w.sync, i == 0)
			if err != nil {
				return err
			}
			w.into.rate(e.size(), took)
			if w.into == &nOurs {
				begin := time.Now()
				if err := e.cluster.dev(ctx, "flush"); err != nil {
					return err
				}
				persisted.rate(e.size(), took+time.Since(begin))
			}
			if err := os.Remove(w.path); err != nil {
				return err
			}
		}
	}
	add(row{What: "write + close", Unit: "MiB/s", Objcache: nOurs, Versus: "ext4", Other: nExt4, Ratio: 0.5, Note: "ext4 with fsync"})
	add(row{What: "write + close", Unit: "MiB/s", Objcache: nOurs, Versus: "s3fs", Other: nS3fs, Ratio: 1.5})
	add(row{What: "write + close + dev flush: in S3, as s3fs has it at close", Unit: "MiB/s", Objcache: persisted, Versus: "s3fs", Other: nS3fs})
	return nil
}

// writeOnce begins with nothing to be written back from what was before.
func (e *env) writeOnce(path string, sync, check bool) (time.Duration, error) {
	if err := dropCaches(e.dir); err != nil {
		return 0, err
	}
	took, err := writeFile(path, e.size(), newContent(), sync)
	if err == nil && check {
		err = checkFile(path, e.size(), newContent())
	}
	return took, err
}
