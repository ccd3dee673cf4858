// Package server assembles one cache server and takes it down: state directory, group, transfers and listeners. It promises that
// nothing is half-started and that a state directory belongs to one process. It does not know what the parts do.
package server

import (
	"fmt"
	"os"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/objcache/objcache"
)

// Config is one server's configuration. The words are those of the YAML file and, later, of the custom resource.
type Config struct {
	// Name is the server's stable name (its ordinal in Kubernetes); members refer to it.
	Name string `json:"name"`
	// Listen is the address for gRPC, host:port. Metrics is that for Prometheus and health; empty: none.
	Listen  string `json:"listen"`
	Metrics string `json:"metrics,omitempty"`
	// Pprof serves the Go profiler's pages below /debug/pprof/ on Metrics. Off by default.
	Pprof bool `json:"pprof,omitempty"`
	// StateDir holds everything the server keeps on disk.
	StateDir string `json:"stateDir"`
	// Cluster names the cluster that the state belongs to.
	Cluster string `json:"cluster"`
	// Epoch is the cluster's life; it grows at every start from empty disks.
	Epoch uint64 `json:"epoch"`
	// Members are all servers, this one included; fixed for now.
	Members []Member `json:"members"`
	// BucketsFile is a YAML file {buckets: [...]} (the paper's secret.yaml); Buckets are the same given here.
	BucketsFile string   `json:"bucketsFile,omitempty"`
	Buckets     []Bucket `json:"buckets,omitempty"`

	CapacityBytes  int64    `json:"capacityBytes"`  // of chunks on disk, clean and dirty; 0: 80 % of what the disk has free at the first start
	FlushInterval  Duration `json:"flushInterval"`  // dirty files reach external storage about this late
	ExternalTTL    Duration `json:"externalTTL"`    // how old names, negative answers and data of external storage may be
	Upload         string   `json:"upload"`         // background | onFsync | onClose
	Conflict       string   `json:"conflict"`       // keep-both | overwrite
	MetadataPrefix string   `json:"metadataPrefix"` // hidden prefix in each bucket; empty: write none
	MemoryBytes    int64    `json:"memoryBytes"`    // budget of the process's heap
	S3Requests     int      `json:"s3Requests"`     // requests to one bucket at the same time
	S3Timeout      Duration `json:"s3Timeout"`      // bound of retries of a read
	SessionLease   Duration `json:"sessionLease"`   // a mount that is not heard of for so long loses its locks

	ScrubInterval Duration `json:"scrubInterval"` // pause between two readings of everything on the disk; 0: it is never scrubbed
	ScrubRate     int64    `json:"scrubRate"`     // bytes per second of that

	// UID, GID and modes are shown for objects that say nothing else.
	UID      uint32 `json:"uid"`
	GID      uint32 `json:"gid"`
	FileMode uint32 `json:"fileMode"`
	DirMode  uint32 `json:"dirMode"`

	TLS      TLS    `json:"tls,omitzero"`
	LogLevel string `json:"logLevel"` // debug | info | warn | error
}

// Member is one server of the cluster.
type Member struct {
	Group   uint32 `json:"group"`
	Name    string `json:"name"`
	Address string `json:"address"`
}

// Bucket is one bucket, in the paper's words.
type Bucket struct {
	DirName    string `json:"dirName"`
	BucketName string `json:"bucketName"`
	Endpoint   string `json:"endpoint,omitempty"`
	Region     string `json:"region,omitempty"`
	AccessKey  string `json:"accessKey,omitempty"`
	SecretKey  string `json:"secretKey,omitempty"`
	CABundle   string `json:"caBundle,omitempty"`
	PathStyle  *bool  `json:"pathStyle,omitempty"`

	// ForeignMetadata says when objects that others wrote are asked for attributes in their user metadata (a request each, once): auto (the
	// default: where s3fs or the like have written), always or never.
	ForeignMetadata string `json:"foreignMetadata,omitempty"`
}

// TLS names PEM files. All empty: plain text.
type TLS struct {
	CertFile string `json:"certFile,omitempty"`
	KeyFile  string `json:"keyFile,omitempty"`
	CAFile   string `json:"caFile,omitempty"` // peers must show a certificate of this authority
}

// Duration is a time.Duration written like "60s".
type Duration time.Duration

// UnmarshalText parses "60s".
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	*d = Duration(v)
	return err
}

// MarshalText writes "1m0s".
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// Default returns the documented defaults.
func Default() Config {
	return Config{
		Epoch: 1, FlushInterval: Duration(time.Minute), ExternalTTL: Duration(5 * time.Second), Upload: "background", Conflict: "keep-both",
		MetadataPrefix: ".objcache/", MemoryBytes: 384 << 20, S3Requests: 64, S3Timeout: Duration(time.Minute), SessionLease: Duration(30 * time.Second),
		ScrubInterval: Duration(24 * time.Hour), ScrubRate: 16 << 20, FileMode: 0o644, DirMode: 0o755, LogLevel: "info",
	}
}

// Load reads a configuration file over the defaults. An unknown key is an error.
func Load(path string) (Config, error) {
	c := Default()
	b, err := os.ReadFile(path)
	if err != nil {
		return c, fmt.Errorf("configuration: %w", err)
	}
	if err := yaml.UnmarshalStrict(b, &c); err != nil {
		return c, objcache.Errorf(objcache.Invalid, "configuration %s: %w", path, err)
	}
	if c.BucketsFile != "" {
		more, err := LoadBuckets(c.BucketsFile)
		if err != nil {
			return c, err
		}
		c.Buckets = append(c.Buckets, more...)
	}
	return c, c.Validate()
}

// LoadBuckets reads the paper's secret.yaml: {buckets: [{dirName, bucketName, accessKey, secretKey, endpoint}]}.
func LoadBuckets(path string) ([]Bucket, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("buckets: %w", err)
	}
	var f struct {
		Buckets []Bucket `json:"buckets"`
	}
	if err := yaml.UnmarshalStrict(b, &f); err != nil {
		return nil, objcache.Errorf(objcache.Invalid, "buckets %s: %w", path, err)
	}
	return f.Buckets, nil
}

// Validate says in one line what is wrong.
func (c Config) Validate() error {
	bad := func(format string, args ...any) error { return objcache.Errorf(objcache.Invalid, format, args...) }
	self := false
	for _, m := range c.Members {
		self = self || m.Name == c.Name
		if m.Group == 0 || m.Name == "" || m.Address == "" {
			return bad("member %q: group, name and address must be set", m.Name)
		}
	}
	switch {
	case c.Name == "":
		return bad("name is empty")
	case c.Listen == "":
		return bad("listen is empty")
	case c.Pprof && c.Metrics == "":
		return bad("pprof needs metrics, the address that serves it")
	case c.StateDir == "":
		return bad("stateDir is empty")
	case !self:
		return bad("members do not name this server %q", c.Name)
	case len(c.Buckets) == 0:
		return bad("no buckets")
	case c.Upload != "background" && c.Upload != "onFsync" && c.Upload != "onClose":
		return bad("upload %q: want background, onFsync or onClose", c.Upload)
	case c.Conflict != "keep-both" && c.Conflict != "overwrite":
		return bad("conflict %q: want keep-both or overwrite", c.Conflict)
	case c.CapacityBytes != 0 && c.CapacityBytes < 64<<20:
		return bad("capacityBytes %d: at least 64 MiB", c.CapacityBytes)
	case c.MemoryBytes < 64<<20:
		return bad("memoryBytes %d: at least 64 MiB", c.MemoryBytes)
	case c.SessionLease < Duration(time.Second):
		return bad("sessionLease %v: at least 1s", time.Duration(c.SessionLease))
	case c.FlushInterval < 0 || c.ExternalTTL < 0 || c.ScrubInterval < 0:
		return bad("durations must not be negative")
	case c.ScrubInterval > 0 && c.ScrubRate < 1<<20:
		return bad("scrubRate %d: at least 1 MiB per second", c.ScrubRate)
	}
	seen := map[string]bool{}
	for _, b := range c.Buckets {
		switch {
		case b.DirName == "" || b.BucketName == "":
			return bad("bucket %q: dirName and bucketName must be set", b.BucketName)
		case strings.ContainsAny(b.DirName, "/\x00") || b.DirName == "." || b.DirName == "..":
			return bad("dirName %q is no file name", b.DirName)
		case b.ForeignMetadata != "" && b.ForeignMetadata != "auto" && b.ForeignMetadata != "always" && b.ForeignMetadata != "never":
			return bad("bucket %q: foreignMetadata %q: want auto, always or never", b.BucketName, b.ForeignMetadata)
		case seen[b.DirName]:
			return bad("dirName %q is there twice", b.DirName)
		}
		seen[b.DirName] = true
	}
	return nil
}
