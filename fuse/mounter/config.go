package mounter

import (
	"os"
	"path/filepath"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/fuse"
)

// Config is one mount. The words are those of flags, YAML and custom resources.
type Config struct {
	Mountpoint string // an empty directory
	// CacheDir is on a local disk that is no overlay (else passthrough is off). One mount at a time; what a killed mount had not flushed is in it.
	CacheDir    string
	CacheBytes  int64  // budget of the node-local cache
	MemoryBytes int64  // budget of buffers in flight
	Passthrough string // "auto" or "off"
	Consistency fuse.Consistency
	AllowOther  bool // let users other than the one who mounts in
	ReadOnly    bool
	EntryTTL    time.Duration // how long the kernel trusts names and attributes: other mounts' changes are seen that late
	ReadAhead   int64         // bytes the kernel reads ahead; best effort
	Root        objcache.Ino  // the directory shown at the mountpoint
	Name        string        // first column of df(1)
	Node        string        // this node's name, in the names of files set aside
	Debug       bool          // log every request
}

// Default returns the configuration that a user who says nothing gets; Mountpoint and CacheDir are his to say.
func Default() Config {
	host, err := os.Hostname()
	if err != nil {
		host = "node"
	}
	return Config{
		CacheBytes: 10 << 30, MemoryBytes: 256 << 20, Passthrough: "auto", Consistency: fuse.CloseToOpen, AllowOther: true,
		EntryTTL: time.Second, ReadAhead: 4 << 20, Root: objcache.RootIno, Name: "objcache", Node: host,
	}
}

// Validate returns the first thing that is wrong, as Invalid, in one line.
func (c Config) Validate() error {
	switch {
	case !filepath.IsAbs(c.Mountpoint):
		return objcache.Errorf(objcache.Invalid, "mountpoint %q is not an absolute path", c.Mountpoint)
	case !filepath.IsAbs(c.CacheDir):
		return objcache.Errorf(objcache.Invalid, "cache directory %q is not an absolute path", c.CacheDir)
	case c.CacheBytes < 1<<20:
		return objcache.Errorf(objcache.Invalid, "cache of %d bytes is less than 1 MiB", c.CacheBytes)
	case c.MemoryBytes < 16<<20:
		return objcache.Errorf(objcache.Invalid, "memory of %d bytes is less than 16 MiB", c.MemoryBytes)
	case c.Passthrough != "auto" && c.Passthrough != "off":
		return objcache.Errorf(objcache.Invalid, "passthrough %q is neither auto nor off", c.Passthrough)
	case c.Consistency != fuse.CloseToOpen && c.Consistency != fuse.Strict:
		return objcache.Errorf(objcache.Invalid, "consistency %q is neither %s nor %s", c.Consistency, fuse.CloseToOpen, fuse.Strict)
	case c.EntryTTL < 0:
		return objcache.Errorf(objcache.Invalid, "entry TTL %v is negative", c.EntryTTL)
	}
	return nil
}
