package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
)

// serverStatus is a server as `objcache status -o json` shows it.
type serverStatus struct {
	Address           string         `json:"address"`
	Name              string         `json:"name"`
	Version           string         `json:"version"`
	Ready             bool           `json:"ready"`
	ViewVersion       string         `json:"viewVersion"`
	Inodes            uint64         `json:"inodes"`
	Chunks            uint64         `json:"chunks"`
	CapacityBytes     uint64         `json:"capacityBytes"`
	CachedBytes       uint64         `json:"cachedBytes"`
	DirtyBytes        uint64         `json:"dirtyBytes"`
	DirtyFiles        uint64         `json:"dirtyFiles"`
	OutstandingWrites uint64         `json:"outstandingWrites"`
	OutstandingBytes  uint64         `json:"outstandingBytes"`
	Sessions          uint64         `json:"sessions"`
	FileLocks         uint64         `json:"fileLocks"`
	LockWaiters       uint64         `json:"lockWaiters"`
	Uploads           uint64         `json:"uploads"`
	Buckets           []bucketStatus `json:"buckets"`
	Problems          []problem      `json:"problems"`
}

type bucketStatus struct {
	DirName             string `json:"dirName"`
	BucketName          string `json:"bucketName"`
	Endpoint            string `json:"endpoint"`
	ConditionalPut      bool   `json:"conditionalPut"`
	ConditionalComplete bool   `json:"conditionalComplete"`
	CopyPart            bool   `json:"copyPart"`
	CopyIfMatch         bool   `json:"copyIfMatch"`
	Error               string `json:"error,omitempty"`
}

type problem struct {
	Path  string `json:"path"`
	Error string `json:"error"`
}

func newStatus() *cobra.Command {
	var servers []string
	var out output
	var timeout time.Duration
	var files tlsFiles
	cmd := &cobra.Command{
		Use:   "status --server ADDR[,ADDR...]",
		Short: "Ask servers what they hold",
		Example: "  objcache status --server 10.0.0.1:7070\n" +
			"  objcache status --server 10.0.0.1:7070,10.0.0.2:7070 -o json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			creds, err := files.credentials()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			all := []serverStatus{}
			var errs error
			for _, addr := range servers {
				st, err := askServer(ctx, addr, creds)
				if err != nil {
					errs = errors.Join(errs, err)
					continue
				}
				all = append(all, st)
			}
			return errors.Join(out.write(cmd.OutOrStdout(), all, func(w io.Writer) error { return printServers(w, all) }), errs)
		},
	}
	cmd.Flags().StringSliceVar(&servers, "server", nil, "addresses of servers")
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Second, "how long to wait for answers")
	out.flag(cmd)
	files.flags(cmd.Flags())
	must(cmd.MarkFlagRequired("server"))
	return cmd
}

// credentials of a gRPC connection.
func (t tlsFiles) credentials() (credentials.TransportCredentials, error) {
	conf, err := t.config()
	if err != nil || conf == nil {
		return insecure.NewCredentials(), err
	}
	return credentials.NewTLS(conf), nil
}

func askServer(ctx context.Context, addr string, creds credentials.TransportCredentials) (serverStatus, error) {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(creds))
	if err != nil {
		return serverStatus{}, objcache.Errorf(objcache.Invalid, "server %s: %w", addr, err)
	}
	defer conn.Close()
	r, err := rpc.NewAdminClient(conn).Status(ctx, &rpc.StatusRequest{})
	if err != nil {
		return serverStatus{}, objcache.Errorf(objcache.Unavailable, "server %s does not answer: %w", addr, err)
	}
	st := serverStatus{
		Address: addr, Name: r.GetName(), Version: r.GetVersion(), Ready: r.GetReady(),
		ViewVersion: objcache.ViewVersion{Epoch: r.GetViewEpoch(), Version: r.GetViewVersion()}.String(),
		Inodes:      r.GetInodes(), Chunks: r.GetChunks(), CapacityBytes: r.GetCapacityBytes(), CachedBytes: r.GetCachedBytes(),
		DirtyBytes: r.GetDirtyBytes(), DirtyFiles: r.GetDirtyFiles(), OutstandingWrites: r.GetOutstandingWrites(),
		Sessions: r.GetSessions(), FileLocks: r.GetFileLocks(), LockWaiters: r.GetLockWaiters(),
		OutstandingBytes: r.GetOutstandingBytes(), Uploads: r.GetUploads(), Buckets: []bucketStatus{}, Problems: []problem{},
	}
	for _, b := range r.GetBuckets() {
		st.Buckets = append(st.Buckets, bucketStatus{
			b.GetDirName(), b.GetBucketName(), b.GetEndpoint(), b.GetConditionalPut(), b.GetConditionalComplete(), b.GetCopyPart(), b.GetCopyIfMatch(), b.GetError(),
		})
	}
	for _, p := range r.GetProblems() {
		st.Problems = append(st.Problems, problem{p.GetPath(), p.GetError()})
	}
	return st, nil
}

func printServers(w io.Writer, all []serverStatus) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SERVER\tADDRESS\tREADY\tVIEW\tINODES\tCHUNKS\tCAPACITY\tCACHED\tDIRTY\tDIRTY FILES\tUPLOADS\tVERSION")
	for _, s := range all {
		fmt.Fprintf(t, "%s\t%s\t%t\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\n", s.Name, s.Address, s.Ready, s.ViewVersion, s.Inodes, s.Chunks,
			s.CapacityBytes, s.CachedBytes, s.DirtyBytes, s.DirtyFiles, s.Uploads, s.Version)
	}
	for _, s := range all {
		for _, b := range s.Buckets {
			if b.Error != "" {
				fmt.Fprintf(t, "\n%s: bucket %s: %s\n", s.Name, b.BucketName, b.Error)
			}
		}
		for _, p := range s.Problems {
			fmt.Fprintf(t, "\n%s: %s: %s\n", s.Name, p.Path, p.Error)
		}
	}
	return t.Flush()
}

// output is the flag -o.
type output struct{ format string }

func (o *output) flag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.format, "output", "o", "table", "table or json")
	must(cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json"}, cobra.ShellCompDirectiveNoFileComp)))
}

func (o *output) write(w io.Writer, v any, table func(io.Writer) error) error {
	switch o.format {
	case "table":
		return table(w)
	case "json":
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(v)
	}
	return objcache.Errorf(objcache.Invalid, "-o %q: want table or json", o.format)
}
