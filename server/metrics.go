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
	scrubbed     = serverDesc("scrubbed_bytes_total", "Bytes that the scrub has read and compared with their checksums.")
	rotten       = serverDesc("rotten_clean_blocks_total", "Cached blocks that did not match their checksum; they are fetched again.")
	damaged      = serverDesc("damaged_extents", "Runs of bytes that external storage does not have and that do not match their checksum any more.")
	cleanBytes   = serverDesc("clean_bytes", "Cached bytes that external storage has too.")
	dirtyBytes   = serverDesc("dirty_bytes", "Bytes that external storage does not have yet.")
	capacity     = serverDesc("capacity_bytes", "Budget of cached and dirty bytes.")
)

// Describe makes collector a prometheus.Collector.
func (collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{logSyncs, dataSyncs, transactions, scrubbed, rotten, damaged, cleanBytes, dirtyBytes, capacity} {
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
	count(scrubbed, c.s.scrubbed.Load())
	count(rotten, uint64(c.s.bytes.CorruptClean()))
	if d, err := c.s.group.Damaged(); err == nil {
		gauge(damaged, int64(len(d)))
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
