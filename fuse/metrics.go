package fuse

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

func desc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("objcache_fuse_"+name, help, nil, nil)
}

var gauges = []struct {
	desc  *prometheus.Desc
	value func(Status) float64
}{
	{desc("open_files", "Open file descriptions."), func(s Status) float64 { return float64(s.OpenFiles) }},
	{desc("passthrough_open_files", "Open file descriptions that the kernel reads itself."), func(s Status) float64 { return float64(s.Passthrough.Open) }},
	{desc("nodes", "Inodes the kernel knows."), func(s Status) float64 { return float64(s.Nodes) }},
	{desc("cache_bytes", "Bytes in the node-local cache."), func(s Status) float64 { return float64(s.Cache.Bytes) }},
	{desc("cache_budget_bytes", "Budget of the node-local cache."), func(s Status) float64 { return float64(s.Cache.Budget) }},
	{desc("locks", "File locks that programs of this mount hold."), func(s Status) float64 { return float64(s.Locks) }},
	{desc("lock_waiters", "Programs of this mount that wait for a file lock."), func(s Status) float64 { return float64(s.LockWaiters) }},
	{desc("dirty_bytes", "Bytes written here that no flush has committed."), func(s Status) float64 { return float64(s.Cache.Dirty) }},
}

var totals = []struct {
	desc  *prometheus.Desc
	value func(*counters) *atomic.Uint64
}{
	{desc("read_bytes_total", "Bytes answered to reads that reached the mount process."), func(c *counters) *atomic.Uint64 { return &c.readBytes }},
	{desc("written_bytes_total", "Bytes written."), func(c *counters) *atomic.Uint64 { return &c.writtenBytes }},
	{desc("fetched_bytes_total", "Bytes fetched from the cluster."), func(c *counters) *atomic.Uint64 { return &c.fetchedBytes }},
	{desc("staged_bytes_total", "Bytes staged ahead of a flush."), func(c *counters) *atomic.Uint64 { return &c.stagedBytes }},
	{desc("flushes_total", "Commits of new bytes."), func(c *counters) *atomic.Uint64 { return &c.flushes }},
	{desc("flush_errors_total", "Commits that failed."), func(c *counters) *atomic.Uint64 { return &c.flushErrors }},
	{desc("version_changes_total", "Open files switched to a version of another mount."), func(c *counters) *atomic.Uint64 { return &c.versions }},
	{desc("invalidations_total", "Requests to the kernel to drop pages."), func(c *counters) *atomic.Uint64 { return &c.invalidations }},
	{desc("sessions_lost_total", "Sessions that the servers ended."), func(c *counters) *atomic.Uint64 { return &c.sessionsLost }},
	{desc("open_retries_total", "Opens sent to another node (ESTALE once)."), func(c *counters) *atomic.Uint64 { return &c.retries }},
	{desc("rotted_blocks_total", "Cached blocks that did not match their checksum."), func(c *counters) *atomic.Uint64 { return &c.rotted }},
}

// Describe makes FS a prometheus.Collector.
func (fs *FS) Describe(ch chan<- *prometheus.Desc) {
	for _, g := range gauges {
		ch <- g.desc
	}
	for _, t := range totals {
		ch <- t.desc
	}
}

// Collect makes FS a prometheus.Collector.
func (fs *FS) Collect(ch chan<- prometheus.Metric) {
	s := fs.Status()
	for _, g := range gauges {
		ch <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, g.value(s))
	}
	for _, t := range totals {
		ch <- prometheus.MustNewConstMetric(t.desc, prometheus.CounterValue, float64(t.value(&fs.count).Load()))
	}
}
