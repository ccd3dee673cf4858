package main

import "strings"

// Goals for the resident memory of one process, MiB.
const (
	serverMemory = 512
	mountMemory  = 256
)

// memory says how much each kind of process had at most, through all that was run.
func memory(e *env, add func(row)) {
	var server, mount, s3fs float64
	for name, pid := range e.pids {
		peak := float64(usageOf(pid).peak) / (1 << 20)
		switch {
		case strings.HasPrefix(name, "server"):
			server = max(server, peak)
		case strings.HasPrefix(name, "s3fs"):
			s3fs = max(s3fs, peak)
		default:
			mount = max(mount, peak)
		}
	}
	add(row{What: "peak memory of the largest server", Unit: "MiB", Objcache: numbers{server}, Limit: serverMemory})
	r := row{What: "peak memory of the largest mount", Unit: "MiB", Objcache: numbers{mount}, Limit: mountMemory}
	if s3fs > 0 {
		r.Versus, r.Other = "s3fs", numbers{s3fs}
	}
	add(r)
}
