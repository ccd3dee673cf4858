// Command faultproxy runs the fault proxy by itself, for benchmarks and demonstrations:
//
//	faultproxy --upstream http://127.0.0.1:7070 --listen 127.0.0.1:7071 --control 127.0.0.1:7072 --latency 20ms --bandwidth 100000000
//	curl -d '{"op":"Put","times":3,"status":503}' http://127.0.0.1:7072/rules
package main

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/objcache/objcache/test/faultproxy"
)

func main() {
	upstream := flag.String("upstream", "", "endpoint of the S3 server, such as http://127.0.0.1:7070")
	listen := flag.String("listen", "127.0.0.1:0", "address for S3 clients")
	control := flag.String("control", "127.0.0.1:0", "address of the remote control")
	latency := flag.Duration("latency", 0, "added to every request")
	bandwidth := flag.Int64("bandwidth", 0, "bytes per second of all bodies together; 0: unbounded")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	settings := faultproxy.Settings{Latency: faultproxy.Duration(*latency), BytesPerSecond: *bandwidth}
	err := run(ctx, *upstream, *listen, *control, settings)
	stop()
	if err != nil {
		slog.Error("fault proxy ended", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, upstream, listen, control string, s faultproxy.Settings) error {
	proxy, err := faultproxy.Start(listen, upstream)
	if err != nil {
		return err
	}
	proxy.Set(s)
	l, err := net.Listen("tcp", control)
	if err != nil {
		return errors.Join(err, proxy.Close())
	}
	remote := &http.Server{Handler: proxy.Control(), ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- remote.Serve(l) }()
	slog.Info("fault proxy serves", "url", proxy.URL, "control", "http://"+l.Addr().String(), "upstream", upstream)
	select {
	case <-ctx.Done():
		return errors.Join(remote.Close(), proxy.Close())
	case err := <-ended:
		return errors.Join(err, proxy.Close())
	}
}
