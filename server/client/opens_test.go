package client

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/ring"
	"github.com/objcache/objcache/test/wait"
)

// deaf counts releases, and its answer to the first is lost.
type deaf struct {
	rpc.UnimplementedFilesServer
	heard chan map[uint64]uint32
	calls int
}

func (d *deaf) Call(_ context.Context, r *rpc.Request) (*rpc.Reply, error) {
	d.heard <- r.GetRelease().GetClosed()
	if d.calls++; d.calls == 1 {
		return nil, status.Error(codes.Unavailable, "the connection broke")
	}
	return &rpc.Reply{}, nil
}

func TestRelease_IsCountedOnceIfItsAnswerIsLost(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &deaf{heard: make(chan map[uint64]uint32, 16)}
	g := grpc.NewServer()
	rpc.RegisterFilesServer(g, d)
	go func() { _ = g.Serve(l) }()
	defer g.Stop()
	view, err := ring.New(objcache.ViewVersion{Epoch: 1, Version: 1}, []ring.Member{{Group: 1, Address: l.Addr().String(), Weight: 1}})
	if err != nil {
		t.Fatal(err)
	}
	c := &Client{router: &Router{View: func() *ring.View { return view }}}
	defer c.router.Close()
	c.cfg.Logger = slog.New(slog.DiscardHandler)
	c.mu.view = view
	c.files.init()
	c.life.init()
	c.life.renewed(&session{id: 1, number: 1}, time.Now(), 30*time.Second)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.releaseLoop(ctx) }()
	// Two descriptors of inode 7, of which one is closed; that of inode 8 follows once the loop is done with it.
	c.opened(7)
	c.opened(7)
	c.opened(8)
	c.Release(7)
	var count uint32
	count += (<-d.heard)[7]
	c.Release(8)
	wait.Until(t, 5*time.Second, "release of inode 8", func() bool {
		closed := <-d.heard
		count += closed[7]
		return closed[8] == 1
	})
	stop()
	<-done
	if count != 1 {
		t.Errorf("%d closes of inode 7 were told instead of one", count)
	}
}
