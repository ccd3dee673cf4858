//go:build integration

package servertest

import (
	"io"
	"net/http"
	"regexp"
	"strconv"
	"testing"

	"github.com/objcache/objcache/server"
)

// TestMetrics_CountWhatACreateCosts: a file in a small directory is one entry of one log.
func TestMetrics_CountWhatACreateCosts(t *testing.T) {
	address := freeAddress(t)
	r := newRig(t, 1, func(c *server.Config) { c.Metrics = address })
	r.write(r.b, "first", nil) // lists the directory
	syncs, calls := r.metric(address, `objcache_server_log_syncs_total`), r.metric(address, `objcache_server_calls_total\{method="Call"\}`)
	one := r.metric(address, `objcache_server_transactions_total\{groups="one",outcome="committed"\}`)
	r.write(r.b, "f", nil)
	if n := r.metric(address, `objcache_server_log_syncs_total`) - syncs; n != 2 {
		t.Errorf("%v fdatasyncs of the log for a create and a flush of nothing", n)
	}
	if n := r.metric(address, `objcache_server_calls_total\{method="Call"\}`) - calls; n != 2 {
		t.Errorf("%v calls for a create and a flush", n)
	}
	if n := r.metric(address, `objcache_server_transactions_total\{groups="one",outcome="committed"\}`) - one; n < 1 {
		t.Errorf("%v transactions", n)
	}
	if r.metric(address, `objcache_server_capacity_bytes`) <= 0 {
		t.Error("no capacity")
	}
}

func (r *rig) metric(address, name string) float64 {
	r.t.Helper()
	resp, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindSubmatch(body)
	if m == nil {
		return 0
	}
	v, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		r.t.Fatal(err)
	}
	return v
}
