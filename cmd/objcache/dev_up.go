package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/dev"
	"github.com/objcache/objcache/server"
)

type upFlags struct {
	set                  dev.Settings
	capacity, cacheBytes byteSize
	mount                string
	s3                   dev.Bucket // --s3 and its companions
	bucketsFile          string
}

func newDevUp(d *devFlags) *cobra.Command {
	f := &upFlags{set: dev.DefaultSettings()}
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Make the cluster, or start what does not run of it",
		Long: "Make the cluster, or start what does not run of it, and return when the mount answers.\n" +
			"Without --s3 and --buckets it runs versitygw, an S3 server whose data is in the state directory.\n" +
			"Settings are kept; changing them later needs `objcache dev down` first.",
		Example: "  objcache dev up\n" +
			"  objcache dev up --servers 5 --mount /mnt/buckets\n" +
			"  objcache dev up --s3 http://minio:9000 --bucket models --access-key K --secret-key S\n" +
			"  objcache dev up --buckets secret.yaml",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return d.with(cmd, true, func(ctx context.Context, c *dev.Cluster) error {
				r, err := f.request(cmd, c.Settings())
				if err != nil {
					return err
				}
				if err := c.Up(ctx, r); err != nil {
					return err
				}
				return printUp(cmd.OutOrStdout(), c.Status(ctx))
			})
		},
	}
	f.register(cmd)
	return cmd
}

func (f *upFlags) register(cmd *cobra.Command) {
	f.cacheBytes = byteSize(f.set.CacheBytes)
	fs := cmd.Flags()
	fs.IntVar(&f.set.Servers, "servers", f.set.Servers, "number of cache servers")
	fs.StringVar(&f.mount, "mount", "", "empty directory for the first mount (default: mnt in the state directory)")
	fs.StringVar(&f.s3.Endpoint, "s3", "", "URL of an S3 server (default: a local one is run)")
	fs.StringVar(&f.s3.BucketName, "bucket", "objcache", "name of the bucket")
	fs.StringVar(&f.s3.DirName, "dir-name", "", "name of the bucket's directory (default: the bucket's name)")
	fs.StringVar(&f.s3.AccessKey, "access-key", "", "access key for --s3")
	fs.StringVar(&f.s3.SecretKey, "secret-key", "", "secret key for --s3")
	fs.StringVar(&f.s3.Region, "region", "", "region for --s3")
	fs.StringVar(&f.bucketsFile, "buckets", "", "YAML file {buckets: [{dirName, bucketName, endpoint, accessKey, secretKey}]} instead of --s3")
	fs.StringVar(&f.set.Consistency, "consistency", f.set.Consistency, "of mounts: close-to-open or strict")
	fs.StringVar(&f.set.Passthrough, "passthrough", f.set.Passthrough, "of mounts: auto or off")
	fs.Var(&f.cacheBytes, "cache-bytes", "size of each mount's cache")
	fs.StringVar(&f.set.Upload, "upload", f.set.Upload, "when files reach S3: background, onFsync or onClose")
	fs.DurationVar(&f.set.FlushInterval, "flush-interval", f.set.FlushInterval, "how late a changed file reaches S3 with --upload background")
	fs.DurationVar(&f.set.SessionLease, "session-lease", f.set.SessionLease, "after how long a mount that is not heard of loses its locks (0: 30 s)")
	fs.BoolVar(&f.set.Pprof, "pprof", f.set.Pprof, "let servers (on their metrics addresses) and mounts (on their sockets) serve the Go profiler")
	fs.Var(&f.capacity, "capacity", "disk space of each server (0: its share of 60 % of what is free, at most 20 GiB)")
	cmd.MarkFlagsMutuallyExclusive("s3", "buckets")
	cmd.MarkFlagsMutuallyExclusive("bucket", "buckets")
	must(cmd.MarkFlagFilename("buckets", "yaml", "yml"))
	must(cmd.MarkFlagDirname("mount"))
}

// request is the cluster's settings with the flags that were given.
func (f *upFlags) request(cmd *cobra.Command, set dev.Settings) (dev.UpRequest, error) {
	given := cmd.Flags().Changed
	for flag, take := range map[string]func(){
		"servers":        func() { set.Servers = f.set.Servers },
		"consistency":    func() { set.Consistency = f.set.Consistency },
		"passthrough":    func() { set.Passthrough = f.set.Passthrough },
		"cache-bytes":    func() { set.CacheBytes = int64(f.cacheBytes) },
		"upload":         func() { set.Upload = f.set.Upload },
		"flush-interval": func() { set.FlushInterval = f.set.FlushInterval },
		"session-lease":  func() { set.SessionLease = f.set.SessionLease },
		"pprof":          func() { set.Pprof = f.set.Pprof },
		"capacity":       func() { set.CapacityBytes = int64(f.capacity) },
	} {
		if given(flag) {
			take()
		}
	}
	r := dev.UpRequest{Settings: set, Bucket: f.s3.BucketName, DirName: f.s3.DirName}
	if r.DirName == "" {
		r.DirName = r.Bucket
	}
	var err error
	if f.mount != "" {
		if r.Mount, err = filepath.Abs(f.mount); err != nil {
			return r, err
		}
	}
	switch {
	case f.bucketsFile != "":
		r.Buckets, err = loadBuckets(f.bucketsFile)
	case f.s3.Endpoint != "" && !given("bucket"):
		err = objcache.Errorf(objcache.Invalid, "--s3 needs --bucket")
	case f.s3.Endpoint != "":
		b := f.s3
		b.DirName = r.DirName
		r.Buckets = []dev.Bucket{b}
	case given("access-key") || given("secret-key") || given("region"):
		err = objcache.Errorf(objcache.Invalid, "--access-key, --secret-key and --region go with --s3")
	}
	return r, err
}

func loadBuckets(path string) ([]dev.Bucket, error) {
	bs, err := server.LoadBuckets(path)
	if err != nil {
		return nil, err
	}
	if len(bs) == 0 {
		return nil, objcache.Errorf(objcache.Invalid, "buckets %s: there are none in it", path)
	}
	var out []dev.Bucket
	for _, b := range bs {
		out = append(out, dev.Bucket(b))
	}
	return out, nil
}

// printUp says where everything is.
func printUp(w io.Writer, s dev.Status) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, m := range s.Mounts {
		fmt.Fprintf(t, "mountpoint\t%s\n", m.Mountpoint)
	}
	for _, b := range s.S3.Buckets {
		endpoint := b.Endpoint
		if endpoint == "" {
			endpoint = s.S3.Endpoint
		}
		fmt.Fprintf(t, "S3 endpoint\t%s\nbucket\t%s (directory %s)\n", endpoint, b.BucketName, b.DirName)
		if b.AccessKey != "" {
			fmt.Fprintf(t, "access key\t%s\nsecret key\t%s\n", b.AccessKey, b.SecretKey)
		}
	}
	return t.Flush()
}
