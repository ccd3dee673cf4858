package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/failpoint"
	"github.com/objcache/objcache/server/chunk"
	"github.com/objcache/objcache/server/client"
	"github.com/objcache/objcache/server/group"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/mirror"
	"github.com/objcache/objcache/server/namespace"
	"github.com/objcache/objcache/server/replica"
	"github.com/objcache/objcache/server/restore"
	"github.com/objcache/objcache/server/ring"
	serverrpc "github.com/objcache/objcache/server/rpc"
	"github.com/objcache/objcache/server/transfer"
)

// Server is one cache server with one group.
type Server struct {
	cfg      Config
	on       Platform
	logger   *slog.Logger
	state    *state
	view     *ring.View
	router   *client.Router
	buckets  *buckets
	bytes    *chunk.Store
	budget   *chunk.Budget
	group    *group.Group
	log      *replica.Replica
	keeper   *mirror.Keeper
	mirror   *mirror.Sender // nil: this is the only group
	restore  *restore.Restore
	fs       *namespace.FS
	moves    *transfer.Transfer
	listen   net.Listener
	grpc     *grpc.Server
	metrics  *prometheus.Registry
	failed   chan error
	scrubbed atomic.Uint64 // bytes
	checks   atomic.Int32  // streams of Rows under way
	stop     context.CancelFunc
	work     *errgroup.Group
	ready    bool
}

// Open starts a server and returns when it answers. On an error nothing is left running.
func Open(ctx context.Context, cfg Config, logger *slog.Logger, options ...Option) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, logger: logger.With("server", cfg.Name), failed: make(chan error, 1), metrics: prometheus.NewRegistry()}
	for _, o := range options {
		o(s)
	}
	s.on.setDefaults()
	life, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.work, life = errgroup.WithContext(life)
	if err := s.open(ctx, life); err != nil {
		return nil, errors.Join(err, s.Close(context.WithoutCancel(ctx)))
	}
	return s, nil
}

func (s *Server) open(ctx, life context.Context) (err error) {
	if s.state, err = openState(s.cfg, &s.on); err != nil {
		return err
	}
	if s.listen, err = s.on.Listen(s.cfg.Listen); err != nil {
		return objcache.Errorf(objcache.Invalid, "listen on %s: %w", s.cfg.Listen, err)
	}
	if s.buckets, err = openBuckets(ctx, s.cfg, &s.on, s.state, s.metrics, s.logger); err != nil {
		return err
	}
	if err := s.openView(); err != nil {
		return err
	}
	if err := s.openGroup(ctx); err != nil {
		return err
	}
	failpoint.Hit(failpoint.StartServing)
	if err := s.serve(life); err != nil {
		return err
	}
	if s.mirror != nil {
		s.mirror.Incarnation = s.group.Incarnation()
		s.mirror.Former = s.group.Rebuilt().Row().GetFormer()
		s.work.Go(func() error { return s.mirror.Run(life) })
	}
	s.work.Go(func() error {
		if err := s.restoreGroup(life); err != nil {
			if life.Err() == nil {
				s.fail(fmt.Errorf("after the loss of the disk: %w", err))
			}
			return err
		}
		return s.moves.Run(life)
	})
	s.work.Go(func() error { return s.expire(life) })
	s.work.Go(func() error { return s.watchDisk(life) })
	s.work.Go(func() error { return s.scrub(life) })
	s.work.Go(func() error { return s.buckets.probeLater(life) })
	s.ready = true
	s.logger.Info("server is ready", "listen", s.listen.Addr().String(), "view", s.view.Version.String(), "buckets", len(s.cfg.Buckets))
	return nil
}

func (s *Server) self() Member {
	for _, m := range s.cfg.Members {
		if m.Name == s.cfg.Name {
			return m
		}
	}
	return Member{} // Validate has looked
}

func (s *Server) openView() (err error) {
	ms := make([]ring.Member, 0, len(s.cfg.Members))
	for _, m := range s.cfg.Members {
		ms = append(ms, ring.Member{Group: objcache.GroupID(m.Group), Name: m.Name, Address: m.Address, Weight: 1})
	}
	s.view, err = ring.New(objcache.ViewVersion{Epoch: s.cfg.Epoch, Version: 1}, ms)
	if err != nil {
		return err
	}
	conf, err := clientTLS(s.cfg.TLS)
	if err != nil {
		return err
	}
	s.router = &client.Router{View: s.View, TLS: conf, Dialer: s.on.Dial}
	return nil
}

// View is the view the server holds.
func (s *Server) View() *ring.View { return s.view }

// Address is where the server listens.
func (s *Server) Address() string { return s.listen.Addr().String() }

// Applied is the index of the last entry of the log that the group's rows hold.
func (s *Server) Applied() uint64 { return s.group.Applied() }

// Rows reads the rows of the group as they are.
func (s *Server) Rows() meta.Reader { return s.group.DB() }

// Failed delivers the reason for which the server must stop: a disk that lies, a listener that broke.
func (s *Server) Failed() <-chan error { return s.failed }

func (s *Server) fail(err error) {
	select {
	case s.failed <- err:
	default:
	}
}

// roomPatience is how long writers wait on a disk full of dirty data while nothing of it reaches external storage, before they are told NoSpace.
const roomPatience = 10 * time.Second

// openGroup opens what the group keeps on disk, bottom up, and the rooms on top of it.
func (s *Server) openGroup(ctx context.Context) error {
	dir := filepath.Join(s.cfg.StateDir, fmt.Sprintf("group-%d", s.self().Group))
	if err := s.on.Disk.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	if err := s.openKeeper(); err != nil {
		return err
	}
	if s.state.new && s.cfg.Formed {
		if err := s.rebuild(ctx, dir); err != nil {
			return err
		}
	}
	capacity, err := s.state.capacity(s.cfg)
	if err != nil {
		return err
	}
	s.budget = chunk.NewBudget(capacity, roomPatience)
	opt := chunk.Options{FS: s.on.Chunks, Budget: s.budget, Logger: s.logger, SegmentSize: int64(failpoint.Number(failpoint.ChunkSegmentBytes))}
	s.on.Bytes(&opt)
	if s.bytes, err = chunk.Open(filepath.Join(dir, "chunks"), opt); err != nil {
		return err
	}
	db, err := openRows(filepath.Join(dir, "rows"), s.cfg, &s.on, s.logger)
	if err != nil {
		return err
	}
	failpoint.Hit(failpoint.StartRows)
	rebuilt, err := group.ReadRebuilt(db)
	if err != nil {
		return errors.Join(err, db.Close())
	}
	s.openSender(db)
	s.group, err = group.Open(ctx, group.Config{
		ID: objcache.GroupID(s.self().Group), DB: db, Bytes: s.bytes, Peers: client.Groups{Router: s.router}, View: s.View, Logger: s.logger,
		Lease: time.Duration(s.cfg.SessionLease), Fence: s.fence, Changed: s.changed(), Rebuilt: rebuilt,
		OpenLog: func(g *group.Group) (group.Log, error) {
			log, err := openLog(filepath.Join(dir, "log"), s.cfg, &s.on, g, s.fail, s.logger)
			if err != nil {
				return nil, err
			}
			s.log = log
			return log, nil
		},
	})
	if err != nil {
		return err
	}
	s.measureSessions()
	return s.openRooms(ctx)
}

func (s *Server) openRooms(ctx context.Context) error {
	defaults := meta.Defaults{UID: s.cfg.UID, GID: s.cfg.GID, FileMode: s.cfg.FileMode, DirMode: s.cfg.DirMode}
	s.moves = transfer.New(transfer.Config{
		Group: s.group, Clean: s.bytes, Peers: s.router, Stores: s.buckets.stores(), View: s.View, Logger: s.logger,
		FlushInterval: time.Duration(s.cfg.FlushInterval), ExternalTTL: time.Duration(s.cfg.ExternalTTL),
		Prefix: s.cfg.MetadataPrefix, Overwrite: s.cfg.Conflict == "overwrite", Defaults: defaults, Node: s.cfg.Name,
		Pressed: s.budget.Pressed,
		Foreign: foreign(s.cfg.Buckets),
	})
	s.fs = &namespace.FS{
		Group: s.group, Peers: s.router, Loader: s.moves, View: s.View, Buckets: s.buckets.names(), Defaults: defaults, Logger: s.logger, Started: time.Now(),
	}
	s.restore = &restore.Restore{Group: s.group, Peers: s.router, View: s.View, Logger: s.logger}
	files := &serverrpc.Files{Group: s.group, FS: s.fs, Transfer: s.moves, Restore: s.restore}
	s.router.LocalGroup, s.router.Local = s.group.ID(), files.Local
	opts := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(client.MaxMessage), grpc.MaxSendMsgSize(client.MaxMessage), grpc.InitialWindowSize(8 << 20), grpc.InitialConnWindowSize(32 << 20),
		grpc.ForceServerCodecV2(rpc.Codec{}),
		grpc.NumStreamWorkers(64), // a handler grows its stack once, not for each call
		grpc.WaitForHandlers(true), grpc.ReadBufferSize(256 << 10), grpc.WriteBufferSize(256 << 10),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	}
	conf, err := serverTLS(s.cfg.TLS)
	if err != nil {
		return err
	}
	if conf != nil {
		opts = append(opts, grpc.Creds(credentials.NewTLS(conf)))
	}
	intercept, calls := s.calls()
	s.metrics.MustRegister(calls, collector{s})
	s.grpc = grpc.NewServer(append(opts, grpc.UnaryInterceptor(intercept))...)
	rpc.RegisterFilesServer(s.grpc, files)
	rpc.RegisterTransactionsServer(s.grpc, &serverrpc.Transactions{Group: s.group})
	rpc.RegisterAdminServer(s.grpc, &admin{s: s})
	rpc.RegisterMirrorServer(s.grpc, s.keeper)
	return s.fs.MakeBuckets(ctx, time.Now().UnixNano())
}

func foreign(buckets []Bucket) map[string]transfer.Foreign {
	m := map[string]transfer.Foreign{}
	for _, b := range buckets {
		if b.ForeignMetadata != "auto" {
			m[b.DirName] = transfer.Foreign(b.ForeignMetadata)
		}
	}
	return m
}

func (s *Server) serve(life context.Context) error {
	s.work.Go(func() error {
		if err := s.grpc.Serve(s.listen); err != nil && life.Err() == nil {
			s.fail(fmt.Errorf("serve %s: %w", s.cfg.Listen, err))
			return err
		}
		return nil
	})
	return s.serveMetrics(life)
}

// fence tells a group of the end of a session, once.
func (s *Server) fence(ctx context.Context, to objcache.GroupID, r *rpc.EndSessionRequest) error {
	return s.router.Tell(ctx, to, &rpc.Request{Header: &rpc.Header{Internal: true}, Op: &rpc.Request_EndSession{EndSession: r}})
}

// expire ends sessions that nobody has heard of for a lease, and frees what nobody will ask for any more.
func (s *Server) expire(life context.Context) error {
	lease := time.Duration(s.cfg.SessionLease)
	tick := time.NewTicker(lease / 10)
	defer tick.Stop()
	for {
		select {
		case <-life.Done():
			return life.Err()
		case <-tick.C:
			before := time.Now().Add(-lease)
			s.group.ExpireSessions(before)
			s.group.ExpireStaged(before, s.group.Alive)
			s.group.CloseEnded()
			s.dropOrphanedStages(life)
			if err := s.group.CollectEnded(time.Now()); err != nil {
				s.logger.Warn("ended sessions not collected", "error", err)
			}
		}
	}
}

// dropOrphanedStages frees what was staged for files that are gone: their last flush failed, and no other will come.
func (s *Server) dropOrphanedStages(life context.Context) {
	for _, ino := range s.group.StagedInos(time.Now().Add(-time.Duration(s.cfg.SessionLease) / 6)) {
		ctx, cancel := context.WithTimeout(life, time.Second)
		in, err := s.fs.Inode(ctx, ino)
		cancel()
		k := objcache.KindOf(err)
		if err == nil && in.GetDead() || err != nil && (k == objcache.Stale || k == objcache.NotExist) {
			s.group.DropStaged(ino)
		}
	}
}

// Close stops the server. What is not persisted stays in the state directory.
func (s *Server) Close(ctx context.Context) error {
	s.ready = false
	if s.grpc != nil {
		done := make(chan struct{})
		go func() { s.grpc.GracefulStop(); close(done) }()
		select {
		case <-done:
		case <-time.After(2 * time.Second):
			s.grpc.Stop()
		case <-ctx.Done():
			s.grpc.Stop()
		}
	}
	s.stop()
	err := s.work.Wait()
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	if s.moves != nil {
		s.moves.Close()
	}
	if s.group != nil {
		err = errors.Join(err, s.group.Close())
	}
	if s.keeper != nil {
		err = errors.Join(err, s.keeper.Close())
	}
	if s.bytes != nil {
		err = errors.Join(err, s.bytes.Close())
	}
	if s.router != nil {
		err = errors.Join(err, s.router.Close())
	}
	if s.listen != nil && s.grpc == nil {
		err = errors.Join(err, s.listen.Close())
	}
	if s.state != nil {
		err = errors.Join(err, s.state.close())
	}
	return err
}

func clientTLS(t TLS) (*tls.Config, error) { return loadTLS(t, false) }
func serverTLS(t TLS) (*tls.Config, error) { return loadTLS(t, true) }
