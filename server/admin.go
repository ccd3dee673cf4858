package server

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/failpoint"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
)

// admin answers operators.
type admin struct {
	rpc.UnimplementedAdminServer
	s *Server
}

// View tells the view, for clients that begin.
func (a *admin) View(context.Context, *rpc.ViewRequest) (*rpc.ViewReply, error) {
	v := a.s.View()
	out := &rpc.ViewReply{Epoch: v.Version.Epoch, Version: v.Version.Version, Upload: a.s.cfg.Upload, Cluster: a.s.cfg.Cluster}
	for _, m := range v.Members {
		out.Members = append(out.Members, &rpc.Member{Group: uint32(m.Group), Name: m.Name, Address: m.Address, Weight: uint32(m.Weight)})
	}
	return out, nil
}

// Status tells what the server holds.
func (a *admin) Status(ctx context.Context, _ *rpc.StatusRequest) (*rpc.StatusReply, error) {
	return a.s.Status(ctx)
}

// Status tells what the server holds. It reads all its rows.
func (s *Server) Status(ctx context.Context) (*rpc.StatusReply, error) {
	v := s.View()
	c, err := s.group.Count()
	if err != nil {
		return nil, err
	}
	u := s.bytes.Usage()
	writes, outstanding := s.group.Outstanding()
	out := &rpc.StatusReply{
		Name: s.cfg.Name, ViewEpoch: v.Version.Epoch, ViewVersion: v.Version.Version, Inodes: c.Inodes, Chunks: c.Chunks, DirtyFiles: c.Owing,
		CachedBytes: uint64(u.Clean), DirtyBytes: uint64(u.Dirty + u.Staged), OutstandingWrites: writes, OutstandingBytes: uint64(outstanding),
		Uploads: uint64(s.moves.Uploads()), CapacityBytes: uint64(u.Capacity), Ready: s.ready, Version: version(),
	}
	if out.FileLocks, out.LockWaiters, err = s.group.FileLockCounts(); err != nil {
		return nil, err
	}
	out.Sessions = uint64(s.group.SessionCount())
	for _, name := range s.buckets.names() {
		b := s.buckets.byName[name]
		caps := b.Capabilities()
		bs := &rpc.BucketStatus{
			DirName: name, BucketName: b.conf.BucketName, Endpoint: b.conf.Endpoint, ConditionalPut: caps.ConditionalPut,
			ConditionalComplete: caps.ConditionalComplete, CopyPart: caps.CopyPart, CopyIfMatch: caps.CopyIfMatch,
		}
		b.mu.Lock()
		if b.mu.err != nil {
			bs.Error = b.mu.err.Error()
		}
		b.mu.Unlock()
		out.Buckets = append(out.Buckets, bs)
	}
	if err := s.losses(out); err != nil {
		return nil, err
	}
	return out, s.problems(ctx, out)
}

// losses tells how much was lost with disks, of files of this group.
func (s *Server) losses(out *rpc.StatusReply) error {
	if row := s.group.Rebuilt().Row(); row != nil {
		out.Rebuilt = &rpc.Rebuilt{
			At: row.GetAt(), CopyOf: row.GetTaken(), Unnamed: younger(row), Compared: !s.group.Comparing(), Cause: row.GetCause(), Partial: row.GetPartial(),
		}
	}
	n, err := s.Lost()
	if err != nil {
		return err
	}
	out.Losing = uint64(n)
	return meta.Losses(s.group.DB(), func(*record.Loss) bool { out.Losses++; return true })
}

// Losses tells them, and forgets those before a time if that is asked for.
func (a *admin) Losses(r *rpc.LossesRequest, to rpc.Admin_LossesServer) error {
	var sent error
	err := meta.Losses(a.s.group.DB(), func(l *record.Loss) bool {
		sent = to.Send(&rpc.Loss{Path: l.GetPath(), Ino: l.GetIno(), At: l.GetAt(), Cause: l.GetCause(), Kept: l.GetKept()})
		return sent == nil
	})
	if err := errors.Join(err, sent); err != nil {
		return err
	}
	return a.s.group.ForgetLosses(r.GetForget())
}

// namesAtMost is how long status looks for the paths of what it reports; after that it says inode numbers.
const namesAtMost = time.Second

func (s *Server) problems(ctx context.Context, out *rpc.StatusReply) error {
	ctx, cancel := context.WithTimeout(ctx, namesAtMost)
	defer cancel()
	say := func(ino objcache.Ino, err error) {
		out.Problems = append(out.Problems, &rpc.Problem{Path: s.fs.NameOf(ctx, ino), Error: err.Error()})
	}
	for ino, err := range s.moves.Stuck() {
		say(ino, err)
	}
	damaged, err := s.group.Damaged()
	for _, d := range damaged {
		say(d.Chunk.Ino, d.Err)
	}
	slices.SortFunc(out.Problems, func(a, b *rpc.Problem) int { return strings.Compare(a.GetPath(), b.GetPath()) })
	return err
}

func version() string {
	if bi, ok := debug.ReadBuildInfo(); ok {
		return bi.Main.Version
	}
	return "unknown"
}

// serveMetrics serves /metrics and /healthz, and profiles where the configuration wants them.
func (s *Server) serveMetrics(life context.Context) error {
	if s.cfg.Metrics == "" {
		return nil
	}
	l, err := net.Listen("tcp", s.cfg.Metrics)
	if err != nil {
		return objcache.Errorf(objcache.Invalid, "listen on %s: %w", s.cfg.Metrics, err)
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(s.metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		if err := json.NewEncoder(w).Encode(map[string]bool{"ready": s.ready}); err != nil {
			s.logger.Debug("health answer not sent", "error", err)
		}
	})
	failpoint.Handle(mux)
	if s.cfg.Pprof {
		HandleProfiles(mux)
	}
	h := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	s.work.Go(func() error {
		if err := h.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	s.work.Go(func() error {
		<-life.Done()
		return h.Close()
	})
	return nil
}
