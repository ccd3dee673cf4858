package dev

import (
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/objcache/objcache"
)

// Settings are what a user may choose; they are kept with the cluster.
type Settings struct {
	Servers       int           `json:"servers"`
	Upload        string        `json:"upload"`                 // background | onFsync | onClose
	FlushInterval time.Duration `json:"flushInterval"`          // nanoseconds
	CapacityBytes int64         `json:"capacityBytes"`          // of one server; 0: its share of 60 % of what the disk has free, at most 20 GiB
	Consistency   string        `json:"consistency"`            // close-to-open | strict
	Passthrough   string        `json:"passthrough"`            // auto | off
	CacheBytes    int64         `json:"cacheBytes"`             // of one mount
	SessionLease  time.Duration `json:"sessionLease,omitempty"` // after which a silent mount loses its locks; 0: the servers' default
	Pprof         bool          `json:"pprof,omitempty"`        // servers (on their metrics addresses) and mounts (on their sockets) serve profiles
}

// DefaultSettings returns the documented defaults.
func DefaultSettings() Settings {
	return Settings{
		Servers: 3, Upload: "background", FlushInterval: time.Minute, Consistency: "close-to-open", Passthrough: "auto", CacheBytes: 10 << 30,
	}
}

// Validate says in one line what is wrong.
func (s Settings) Validate() error {
	oneOf := func(flag, v string, words ...string) error {
		for _, w := range words {
			if v == w {
				return nil
			}
		}
		return objcache.Errorf(objcache.Invalid, "--%s %q: want %s", flag, v, strings.Join(words, " or "))
	}
	switch {
	case s.Servers < 1 || s.Servers > 64:
		return objcache.Errorf(objcache.Invalid, "--servers %d: want 1 to 64", s.Servers)
	case s.FlushInterval < 0:
		return objcache.Errorf(objcache.Invalid, "--flush-interval %v is negative", s.FlushInterval)
	case s.SessionLease != 0 && s.SessionLease < time.Second:
		return objcache.Errorf(objcache.Invalid, "--session-lease %v: at least 1s", s.SessionLease)
	case s.CapacityBytes != 0 && s.CapacityBytes < minCapacity:
		return objcache.Errorf(objcache.Invalid, "--capacity %d: at least 64 MiB (%d)", s.CapacityBytes, minCapacity)
	case s.CacheBytes < 1<<20:
		return objcache.Errorf(objcache.Invalid, "--cache-bytes %d: at least 1 MiB", s.CacheBytes)
	}
	if err := oneOf("upload", s.Upload, "background", "onFsync", "onClose"); err != nil {
		return err
	}
	if err := oneOf("consistency", s.Consistency, "close-to-open", "strict"); err != nil {
		return err
	}
	return oneOf("passthrough", s.Passthrough, "auto", "off")
}

const (
	minCapacity = 64 << 20
	maxShare    = 20 << 30
)

// share is the capacity of one of n servers on the disk of dir when the user does not say.
func share(dir string, n int) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, objcache.Errorf(objcache.IO, "free space of %s: %w", dir, err)
	}
	free := int64(st.Bavail) * st.Bsize
	return min(maxShare, max(minCapacity, free/10*6/int64(n))), nil
}

// Bucket is one bucket, in the words of the servers' configuration.
type Bucket struct {
	DirName    string `json:"dirName"`
	BucketName string `json:"bucketName"`
	Endpoint   string `json:"endpoint,omitempty"`
	Region     string `json:"region,omitempty"`
	AccessKey  string `json:"accessKey,omitempty"`
	SecretKey  string `json:"secretKey,omitempty"`
	CABundle   string `json:"caBundle,omitempty"`
	PathStyle  *bool  `json:"pathStyle,omitempty"`

	ForeignMetadata string `json:"foreignMetadata,omitempty"`
}
