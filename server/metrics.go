package server

import (
	"context"
	"path"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
)

// collector shows what a server has done, when somebody looks.
type collector struct{ s *Server }

func serverDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("objcache_server_"+name, help, labels, nil)
}

var (
	logSyncs     = serverDesc("log_syncs_total", "fdatasyncs of the log.")
	dataSyncs    = serverDesc("data_syncs_total", "fdatasyncs of files that hold bytes.")
	transactions = serverDesc("transactions_total", "Transactions coordinated here that ended, by groups that took part and outcome.", "groups", "outcome")
	cleanBytes   = serverDesc("clean_bytes", "Cached bytes that external storage has too.")
	dirtyBytes   = serverDesc("dirty_bytes", "Bytes that external storage does not have yet.")
	capacity     = serverDesc("capacity_bytes", "Budget of cached and dirty bytes.")
)

// Describe makes collector a prometheus.Collector.
func (collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{logSyncs, dataSyncs, transactions, cleanBytes, dirtyBytes, capacity} {
		ch <- d
	}
}

// Collect makes collector a prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	count := func(d *prometheus.Desc, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	gauge := func(d *prometheus.Desc, n int64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n))
	}
	count(logSyncs, c.s.log.Syncs())
	count(dataSyncs, c.s.bytes.Syncs())
	for k, n := range c.s.group.Transactions() {
		groups, outcome := "one", "committed"
		if k.Several {
			groups = "several"
		}
		if k.Failed {
			outcome = "failed"
		}
		count(transactions, n, groups, outcome)
	}
	u := c.s.bytes.Usage()
	gauge(cleanBytes, u.Clean)
	gauge(dirtyBytes, u.Dirty+u.Staged)
	gauge(capacity, u.Capacity)
}

// calls counts what arrives over the network, by method.
func (s *Server) calls() (grpc.UnaryServerInterceptor, prometheus.Collector) {
	n := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "objcache_server_calls_total", Help: "Calls of clients and other servers."}, []string{"method"})
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		n.WithLabelValues(path.Base(info.FullMethod)).Inc()
		return handler(ctx, req)
	}, n
}
