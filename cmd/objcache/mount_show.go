package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/objcache/objcache/failpoint"
	"github.com/objcache/objcache/fuse/mounter"
	"github.com/objcache/objcache/server"
)

// shown is how other processes find a mount and ask it: its record, its socket, its ready file and its metrics.
type shown struct {
	record mounter.Record
	ready  string
	http   *http.Server
}

// show makes a mount known, the ready file last.
func (f *mountFlags) show(live *mounter.Live) (_ *shown, err error) {
	major, minor := live.Device()
	s := &shown{ready: f.ready, http: &http.Server{Handler: handlers(live, f.pprof), ReadHeaderTimeout: 5 * time.Second}}
	s.record = mounter.Record{
		Mountpoint: f.cfg.Mountpoint, Major: major, Minor: minor, PID: os.Getpid(), Servers: f.servers,
		Socket: filepath.Join(mounter.RuntimeDir(), fmt.Sprintf("%d.sock", os.Getpid())), CAFile: f.tls.ca, CertFile: f.tls.cert, KeyFile: f.tls.key,
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.hide())
		}
	}()
	if err := s.listen(f.metrics); err != nil {
		return nil, err
	}
	if err := mounter.WriteRecord(s.record); err != nil {
		return nil, err
	}
	if f.ready != "" {
		if err := s.record.WriteTo(f.ready); err != nil {
			return nil, err
		}
	}
	return s, notify("READY=1")
}

// listen serves the socket, and metrics at an address if there is one.
func (s *shown) listen(metrics string) error {
	if err := os.MkdirAll(filepath.Dir(s.record.Socket), 0o700); err != nil {
		return err
	}
	if err := os.Remove(s.record.Socket); err != nil && !errors.Is(err, fs.ErrNotExist) { // of an earlier process with this pid
		return err
	}
	if err := s.serve("unix", s.record.Socket); err != nil {
		return err
	}
	if metrics == "" {
		return nil
	}
	return s.serve("tcp", metrics)
}

func (s *shown) serve(network, addr string) error {
	l, err := net.Listen(network, addr)
	if err != nil {
		return fmt.Errorf("status and metrics of the mount: %w", err)
	}
	go func() { _ = s.http.Serve(l) }() // ends with Close; that is its only error
	return nil
}

func handlers(live *mounter.Live, profiles bool) http.Handler {
	reg := prometheus.NewRegistry()
	reg.MustRegister(live.FS(), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(live.Status()) // the reader has gone away
	})
	failpoint.Handle(mux)
	if profiles {
		server.HandleProfiles(mux)
	}
	return mux
}

// hide takes back what show did.
func (s *shown) hide() error {
	err := errors.Join(s.http.Close(), mounter.RemoveRecord(s.record))
	for _, path := range []string{s.ready, s.record.Socket} {
		if path == "" {
			continue
		}
		if rerr := os.Remove(path); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
	}
	return err
}

// untilUnmounted waits for the end of ctx or for somebody's umount(8).
func untilUnmounted(ctx context.Context, live *mounter.Live) error {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		live.Wait()
	}()
	select {
	case <-ctx.Done():
	case <-gone:
	}
	return notify("STOPPING=1")
}

// bounded is the context of the unmount: it ends by the flag, or at a second signal.
func (f *mountFlags) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.unmountWithin)
	end, stop := signal.NotifyContext(end, os.Interrupt, syscall.SIGTERM)
	return end, func() { stop(); cancel() }
}
