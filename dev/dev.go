// Package dev runs a cluster on one machine: cache servers, a local S3 server and mounts, each a process of its own, below one state directory.
// It promises that these processes outlive the command that started them, that what a failed call started is stopped again, and that only a directory
// it made is ever deleted. It does not know how a server or a mount works: it runs them with configuration files and flags and asks them over gRPC.
package dev

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/objcache/objcache"
)

// Storage is what dev asks of external storage.
type Storage interface {
	// Make makes the bucket; one that is the caller's already is success.
	Make(ctx context.Context, b Bucket) error
	// Check tells in one line why the bucket cannot be used: no such bucket, wrong keys, endpoint not reachable.
	Check(ctx context.Context, b Bucket) error
}

// Programs are the executables that dev runs.
type Programs struct {
	Objcache  string // has the commands server and mount
	Versitygw string // the local S3 server; empty: there is none
}

// Cluster is the cluster of one state directory. While it is open no other command changes that cluster. Not safe for concurrent use.
type Cluster struct {
	dir   string
	prog  Programs
	store Storage
	out   io.Writer // progress, for people
	lock  *lock
	spec  spec
}

// Open takes the state directory's lock, waiting for another command until ctx ends. With create it makes the directory if there is none.
// Errors: NotExist when there is no cluster, Invalid for a directory that is none of ours or of another version.
func Open(ctx context.Context, dir string, create bool, prog Programs, store Storage, out io.Writer) (*Cluster, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := claim(dir, create); err != nil {
		return nil, err
	}
	l, err := takeLock(ctx, dir, out)
	if err != nil {
		return nil, err
	}
	c := &Cluster{dir: dir, prog: prog, store: store, out: out, lock: l}
	if c.spec, err = loadSpec(dir); err != nil {
		l.release()
		return nil, err
	}
	return c, nil
}

// Close lets other commands in. The processes go on.
func (c *Cluster) Close() { c.lock.release() }

func (c *Cluster) say(format string, args ...any) { fmt.Fprintf(c.out, format+"\n", args...) }

func (c *Cluster) names() []string {
	var names []string
	for _, m := range c.members() {
		names = append(names, m.name())
	}
	return names
}

// Names are what Kill, Stop and Start take: the servers, the mounts and, if there is a local one, the S3 server. None for a directory without a cluster.
func Names(dir string) []string {
	if claim(dir, false) != nil {
		return nil
	}
	s, err := loadSpec(dir)
	if err != nil {
		return nil
	}
	return (&Cluster{dir: dir, spec: s}).names()
}

// member is one process of the cluster.
type member interface {
	name() string
	dir() string // holds the pid file and the log
	// start runs the process and returns when it answers.
	start(ctx context.Context) error
	// ended cleans up behind a process that is gone.
	ended(ctx context.Context) error
}

// members in the order in which they are started.
func (c *Cluster) members() []member {
	var ms []member
	if c.spec.S3 != nil {
		ms = append(ms, s3Member{c})
	}
	for i := range c.spec.Servers {
		ms = append(ms, serverMember{c, c.spec.Servers[i]})
	}
	for i := range c.spec.Mounts {
		ms = append(ms, mountMember{c, c.spec.Mounts[i]})
	}
	return ms
}

func (c *Cluster) member(name string) (member, error) {
	ms := c.members()
	i := slices.IndexFunc(ms, func(m member) bool { return m.name() == name })
	if i < 0 {
		return nil, objcache.Errorf(objcache.NotExist, "process %q (there are %v)", name, c.names())
	}
	return ms[i], nil
}
