package dev

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"sigs.k8s.io/yaml"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
)

type serverMember struct {
	c    *Cluster
	spec serverSpec
}

func (s serverMember) name() string                { return s.spec.Name }
func (s serverMember) dir() string                 { return filepath.Join(s.c.dir, "servers", s.spec.Name) }
func (s serverMember) ended(context.Context) error { return nil }

// serverConfig is a server's configuration file, as far as dev has something to say.
type serverConfig struct {
	Name          string       `json:"name"`
	Listen        string       `json:"listen"`
	Metrics       string       `json:"metrics"`
	Pprof         bool         `json:"pprof,omitempty"`
	StateDir      string       `json:"stateDir"`
	Cluster       string       `json:"cluster"`
	Epoch         uint64       `json:"epoch"`
	Members       []serverPeer `json:"members"`
	BucketsFile   string       `json:"bucketsFile"`
	CapacityBytes int64        `json:"capacityBytes"`
	FlushInterval string       `json:"flushInterval"`
	Upload        string       `json:"upload"`
	SessionLease  string       `json:"sessionLease,omitempty"`
	UID           int          `json:"uid"`
	GID           int          `json:"gid"`
}

type serverPeer struct {
	Group   uint32 `json:"group"`
	Name    string `json:"name"`
	Address string `json:"address"`
}

func (s serverMember) config() serverConfig {
	set := s.c.spec.Settings
	cfg := serverConfig{
		Name: s.spec.Name, Listen: s.spec.Address, Metrics: s.spec.Metrics, Pprof: set.Pprof, StateDir: filepath.Join(s.dir(), "state"), Cluster: s.c.spec.Cluster, Epoch: 1,
		BucketsFile: filepath.Join(s.c.dir, bucketsName), CapacityBytes: set.CapacityBytes, FlushInterval: set.FlushInterval.String(), Upload: set.Upload,
		UID: os.Getuid(), GID: os.Getgid(),
	}
	if set.SessionLease != 0 {
		cfg.SessionLease = set.SessionLease.String()
	}
	for i, p := range s.c.spec.Servers {
		cfg.Members = append(cfg.Members, serverPeer{Group: uint32(i + 1), Name: p.Name, Address: p.Address})
	}
	return cfg
}

// configure writes the file that the server reads, anew at every start.
func (s serverMember) configure() error {
	if err := os.MkdirAll(filepath.Join(s.dir(), "state"), 0o700); err != nil {
		return err
	}
	cfg, err := yaml.Marshal(s.config())
	if err != nil {
		return err
	}
	return writeFile(s.configFile(), cfg)
}

func (s serverMember) configFile() string { return filepath.Join(s.dir(), "config.yaml") }

func (s serverMember) start(ctx context.Context) error {
	if err := s.configure(); err != nil {
		return err
	}
	d, err := launch(s.dir(), nil, s.c.prog.Objcache, "server", "--config", s.configFile())
	if err != nil {
		return err
	}
	conn, err := dial(s.spec.Address)
	if err != nil {
		return errors.Join(err, d.kill())
	}
	defer conn.Close()
	return d.until(ctx, s.spec.Name, func(ctx context.Context) bool {
		r, err := askStatus(ctx, conn)
		return err == nil && r.GetReady() && r.GetName() == s.spec.Name
	})
}

func dial(addr string) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithConnectParams(quick))
	if err != nil {
		return nil, objcache.Errorf(objcache.Invalid, "server address %s: %w", addr, err)
	}
	return conn, nil
}

// statusDeadline bounds the question to one server.
const statusDeadline = 1500 * time.Millisecond

func askStatus(ctx context.Context, conn *grpc.ClientConn) (*rpc.StatusReply, error) {
	ctx, cancel := context.WithTimeout(ctx, statusDeadline)
	defer cancel()
	r, err := rpc.NewAdminClient(conn).Status(ctx, &rpc.StatusRequest{})
	if err != nil {
		return nil, rpc.FromStatus(err)
	}
	return r, nil
}
