package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/objcache/objcache/test/faultproxy"
)

// A slow S3, as far away as another data centre.
const (
	slowRate    = 200 << 20
	slowLatency = 20 * time.Millisecond
)

func throttled(ctx context.Context, e *env, add func(row)) error {
	c := newContent()
	e.proxy.Set(faultproxy.Settings{Latency: faultproxy.Duration(slowLatency), BytesPerSecond: slowRate})
	defer e.proxy.Set(faultproxy.Settings{})
	var ours, plain numbers
	for i := range e.runs {
		key := fmt.Sprintf("throttled-%d/data", i)
		if err := put(ctx, e.proxied, key, e.size(), c); err != nil {
			return err
		}
		took, err := plainRead(ctx, e.slow, key, e.size())
		if err != nil {
			return err
		}
		plain.rate(e.size(), took)
		path := e.cluster.at(viaProxy, key)
		if took, err = coldRead(ctx, e, path); err != nil {
			return err
		}
		ours.rate(e.size(), took)
		if err := os.RemoveAll(filepath.Dir(path)); err != nil {
			return err
		}
	}
	add(row{What: "cold read, S3 held to 200 MiB/s and 20 ms", Unit: "MiB/s", Objcache: ours, Versus: "plain", Other: plain, Ratio: 0.9})
	return nil
}

func coldRead(ctx context.Context, e *env, path string) (time.Duration, error) {
	if err := appear(ctx, path); err != nil {
		return 0, err
	}
	if err := dropCaches(e.dir); err != nil {
		return 0, err
	}
	return readFile(path, e.size())
}

// readers are the places that the same object is read at, and what they gave.
type readers struct {
	e                       *env
	s3fs, second, off, ext4 string
	content                 content
	nS3fs, nCold, nDropped  numbers
	nWarm, nSecond          numbers
	nOffDropped, nOffWarm   numbers
	nExt4Dropped, nExt4Warm numbers
	cpu                     map[string]time.Duration
}

func reads(ctx context.Context, e *env, add func(row)) (err error) {
	r := &readers{e: e, content: newContent(), ext4: e.disk("ext4-read"), cpu: map[string]time.Duration{}}
	if r.s3fs, err = e.mountS3fs(ctx, "s3fs-read", direct, e.s3.S3.Endpoint); err != nil {
		return err
	}
	if r.second, err = e.cluster.mount(ctx, "second", e.passthrough); err != nil {
		return err
	}
	if r.off, err = e.cluster.mount(ctx, "passthrough-off", "off"); err != nil {
		return err
	}
	if _, err := writeFile(r.ext4, e.size(), r.content, true); err != nil {
		return err
	}
	for i := range e.runs {
		if err := r.round(ctx, fmt.Sprintf("read-%d/data", i), i == 0); err != nil {
			return err
		}
	}
	r.rows(add)
	return os.Remove(r.ext4)
}

// round reads one object everywhere.
func (r *readers) round(ctx context.Context, key string, check bool) error {
	e := r.e
	if err := put(ctx, e.direct, key, e.size(), r.content); err != nil {
		return err
	}
	path := e.cluster.at(direct, key)
	before := e.cpus()
	for _, cold := range []struct {
		path string
		into *numbers
	}{
		{filepath.Join(r.s3fs, key), &r.nS3fs}, {path, &r.nCold},
		{filepath.Join(r.second, direct, key), &r.nSecond}, {filepath.Join(r.off, direct, key), new(numbers)},
	} {
		if cold.into == &r.nCold {
			before = e.cpus()
		}
		took, err := coldRead(ctx, e, cold.path)
		if err != nil {
			return err
		}
		cold.into.rate(e.size(), took)
		if cold.into == &r.nCold {
			r.spent(before)
		}
	}
	if check {
		if err := checkFile(path, e.size(), r.content); err != nil {
			return err
		}
	}
	if err := r.again(path, &r.nDropped, &r.nWarm); err != nil {
		return err
	}
	if err := r.again(filepath.Join(r.off, direct, key), &r.nOffDropped, &r.nOffWarm); err != nil {
		return err
	}
	if err := r.again(r.ext4, &r.nExt4Dropped, &r.nExt4Warm); err != nil {
		return err
	}
	return os.RemoveAll(filepath.Dir(path))
}

// again reads with the page cache emptied, and once more.
func (r *readers) again(path string, dropped, warm *numbers) error {
	if err := dropCaches(r.e.dir); err != nil {
		return err
	}
	for _, into := range []*numbers{dropped, warm} {
		took, err := readFile(path, r.e.size())
		if err != nil {
			return err
		}
		into.rate(r.e.size(), took)
	}
	return nil
}

// cpus is what every process has used by now.
func (e *env) cpus() map[string]time.Duration {
	m := map[string]time.Duration{"minio": usageOf(e.s3.Pid()).cpu}
	for name, pid := range e.pids {
		m[name] = usageOf(pid).cpu
	}
	return m
}

func (r *readers) spent(before map[string]time.Duration) {
	for name, d := range r.e.cpus() {
		r.cpu[name] += d - before[name]
	}
}

func (r *readers) rows(add func(row)) {
	total := float64(r.e.size()) * float64(r.e.runs) / float64(gib)
	var each []string
	for _, name := range slices.Sorted(maps.Keys(r.cpu)) {
		if s := r.cpu[name].Seconds() / total; s >= 0.005 {
			each = append(each, fmt.Sprintf("%s %.2f", name, s))
		}
	}
	r.addRows(add, "CPU seconds per GiB: "+strings.Join(each, ", "))
}

func (r *readers) addRows(add func(row), cpu string) {
	const unit = "MiB/s"
	add(row{What: "cold read", Unit: unit, Objcache: r.nCold, Versus: "s3fs", Other: r.nS3fs, Ratio: 1, Note: cpu})
	want := 0.8
	if r.e.passthrough == "off" {
		want = 0.3
	}
	add(row{What: "second read, page cache dropped, passthrough " + r.e.passthrough, Unit: unit, Objcache: r.nDropped, Versus: "ext4", Other: r.nExt4Dropped, Ratio: want})
	add(row{What: "second read, warm, passthrough " + r.e.passthrough, Unit: unit, Objcache: r.nWarm, Versus: "ext4", Other: r.nExt4Warm, Ratio: want})
	if r.e.passthrough != "off" {
		add(row{What: "second read, page cache dropped, passthrough off", Unit: unit, Objcache: r.nOffDropped, Versus: "ext4", Other: r.nExt4Dropped, Ratio: 0.3})
		add(row{What: "second read, warm, passthrough off", Unit: unit, Objcache: r.nOffWarm, Versus: "ext4", Other: r.nExt4Warm, Ratio: 0.3})
	}
	add(row{What: "read on a second, cold mount of what servers hold", Unit: unit, Objcache: r.nSecond, Versus: "cold", Other: r.nCold, Ratio: 1.5})
}
