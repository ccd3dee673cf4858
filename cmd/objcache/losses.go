package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/dev"
)

// losses is what `objcache losses -o json` shows.
type losses struct {
	Files   []loss    `json:"files"`
	Rebuilt []rebuilt `json:"rebuilt"`
	Losing  uint64    `json:"losing"` // files that are still to go back

	complete bool // every server has answered
}

// loss is a file that went back to what external storage has of it.
type loss struct {
	Path  string    `json:"path"`
	At    time.Time `json:"at"` // when it was found out
	Cause string    `json:"cause"`
	Kept  string    `json:"kept,omitempty"` // key of the object that now stands for it; absent: it had never been persisted
}

// rebuilt is a server that has lost its disk.
type rebuilt struct {
	Server   string    `json:"server"`
	At       time.Time `json:"at"`
	CopyOf   time.Time `json:"copyOf,omitzero"`   // of its index, from which names are known; absent: there was no copy
	Unnamed  uint64    `json:"unnamed"`           // changes that are younger than the copy
	Compared bool      `json:"compared"`          // it agrees with all others again
	Partial  bool      `json:"partial,omitempty"` // the copy had come in part: more is undone than is told
}

func newLosses() *cobra.Command {
	var servers []string
	var out output
	var forget bool
	var timeout time.Duration
	var files tlsFiles
	cmd := &cobra.Command{
		Use:   "losses --server ADDR[,ADDR...]",
		Short: "Name the files whose latest content was lost with a server's disk",
		Long: "Name the files whose latest content was lost with a server's disk. Each has gone back to its last version in external storage; one that was never there\n" +
			"is gone. Give the addresses of all servers: each tells its own files.",
		Example: "  objcache losses --server 10.0.0.1:7070,10.0.0.2:7070\n  objcache losses --server 10.0.0.1:7070 --forget",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			creds, err := files.credentials()
			if err != nil {
				return err
			}
			return showLosses(cmd, servers, creds, timeout, forget, &out)
		},
	}
	cmd.Flags().StringSliceVar(&servers, "server", nil, "addresses of servers")
	lossFlags(cmd, &forget, &timeout, &out)
	files.flags(cmd.Flags())
	must(cmd.MarkFlagRequired("server"))
	return cmd
}

func newDevLosses(d *devFlags) *cobra.Command {
	var out output
	var forget bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:     "losses",
		Short:   "Name the files whose latest content was lost with a server's disk",
		Long:    "Name the files whose latest content was lost with a server's disk (`objcache dev kill --destroy`).",
		Example: "  objcache dev losses\n  objcache dev losses --forget",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			st, err := dev.ReadStatus(cmd.Context(), d.state)
			if err != nil {
				return err
			}
			var servers []string
			for _, s := range st.Servers {
				servers = append(servers, s.Address)
			}
			return showLosses(cmd, servers, insecure.NewCredentials(), timeout, forget, &out)
		},
	}
	lossFlags(cmd, &forget, &timeout, &out)
	return cmd
}

func lossFlags(cmd *cobra.Command, forget *bool, timeout *time.Duration, out *output) {
	cmd.Flags().BoolVar(forget, "forget", false, "do not name them again")
	cmd.Flags().DurationVar(timeout, "timeout", 10*time.Second, "how long to wait for answers")
	out.flag(cmd)
}

// showLosses shows what answers, and fails for the servers that do not.
func showLosses(cmd *cobra.Command, servers []string, creds credentials.TransportCredentials, timeout time.Duration, forget bool, out *output) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
	defer cancel()
	all := losses{Files: []loss{}, Rebuilt: []rebuilt{}}
	var errs error
	for _, addr := range servers {
		if err := all.ask(ctx, addr, creds, 0); err != nil {
			errs = errors.Join(errs, objcache.Errorf(objcache.Unavailable, "server %s does not answer: %w", addr, err))
		}
	}
	slices.SortFunc(all.Files, func(a, b loss) int { return strings.Compare(a.Path, b.Path) })
	all.complete = errs == nil
	if err := errors.Join(out.write(cmd.OutOrStdout(), all, all.print), errs); err != nil || !forget {
		return err
	}
	latest := int64(1) // of what has been shown
	for _, f := range all.Files {
		latest = max(latest, f.At.UnixNano())
	}
	for _, addr := range servers {
		if err := (&losses{}).ask(ctx, addr, creds, latest); err != nil {
			return objcache.Errorf(objcache.Unavailable, "server %s does not answer: %w", addr, err)
		}
	}
	return nil
}

// ask adds what a server tells, which forgets what was lost up to a time (ns), unless that is 0.
func (l *losses) ask(ctx context.Context, addr string, creds credentials.TransportCredentials, forget int64) error {
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(creds))
	if err != nil {
		return err
	}
	defer conn.Close()
	c := rpc.NewAdminClient(conn)
	st, err := c.Status(ctx, &rpc.StatusRequest{})
	if err != nil {
		return err
	}
	if r := st.GetRebuilt(); r != nil {
		x := rebuilt{Server: st.GetName(), At: time.Unix(0, r.GetAt()), Unnamed: r.GetUnnamed(), Compared: r.GetCompared(), Partial: r.GetPartial()}
		if r.GetCopyOf() > 0 {
			x.CopyOf = time.Unix(0, r.GetCopyOf())
		}
		l.Rebuilt = append(l.Rebuilt, x)
	}
	l.Losing += st.GetLosing()
	stream, err := c.Losses(ctx, &rpc.LossesRequest{Forget: forget})
	for err == nil {
		var f *rpc.Loss
		if f, err = stream.Recv(); err == nil {
			l.Files = append(l.Files, loss{Path: f.GetPath(), At: time.Unix(0, f.GetAt()), Cause: f.GetCause(), Kept: f.GetKept()})
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func (l *losses) print(w io.Writer) error {
	for _, r := range l.Rebuilt {
		if err := r.print(w); err != nil {
			return err
		}
	}
	if l.Losing > 0 {
		if _, err := fmt.Fprintf(w, "%d more files have lost their latest content and are being taken back to what external storage has: ask again.\n", l.Losing); err != nil {
			return err
		}
	}
	if len(l.Files) == 0 && l.Losing == 0 && l.complete && !slices.ContainsFunc(l.Rebuilt, func(r rebuilt) bool { return !r.Compared }) {
		_, err := fmt.Fprintln(w, "No file is known to have lost its latest content.")
		return err
	}
	if len(l.Files) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "FILE\tNOW\tCAUSE\tFOUND OUT")
	for _, f := range l.Files {
		now := "as last persisted"
		if f.Kept == "" {
			now = "gone: never persisted"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", f.Path, now, f.Cause, f.At.Format(time.RFC3339))
	}
	return t.Flush()
}

func (r rebuilt) print(w io.Writer) error {
	text := fmt.Sprintf("%s lost its disk and began again at %s", r.Server, r.At.Format(time.RFC3339))
	switch {
	case r.CopyOf.IsZero():
		text += ", without a copy of its index: what was lost with it has no names."
	case r.Unnamed == 0:
		text += fmt.Sprintf(", from a copy of its index of %s. No change is known to be younger.", r.CopyOf.Format("15:04:05.000"))
	default:
		text += fmt.Sprintf(", from a copy of its index of %s. %d younger changes are lost and have no names.", r.CopyOf.Format("15:04:05.000"), r.Unnamed)
	}
	if r.Partial {
		text += " The copy had come in part: more may be undone than is told."
	}
	if !r.Compared {
		text += " It is still being compared with the others: more losses may be found."
	}
	_, err := fmt.Fprintln(w, text)
	return err
}
