package main

import (
	"context"
	"fmt"
	"net/http"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/objcache/objcache/dev"
)

// cost is what all servers of a cluster have counted so far.
type cost struct{ syncs, client, servers float64 }

func (c cost) plus(o cost) cost {
	return cost{c.syncs + o.syncs, c.client + o.client, c.servers + o.servers}
}
func (c cost) minus(o cost) cost { return c.plus(o.times(-1)) }

func (c cost) times(f float64) cost { return cost{c.syncs * f, c.client * f, c.servers * f} }

// cost reads the servers' metrics.
func (c *cluster) cost(ctx context.Context) (cost, error) {
	st, err := dev.ReadStatus(ctx, c.state)
	if err != nil {
		return cost{}, err
	}
	var sum cost
	for _, s := range st.Servers {
		m, err := scrape(ctx, s.Metrics)
		if err != nil {
			return cost{}, err
		}
		sum.syncs += total(m["objcache_server_log_syncs_total"], "") + total(m["objcache_server_data_syncs_total"], "")
		calls := m["objcache_server_calls_total"]
		sum.client += total(calls, "Call")
		sum.servers += total(calls, "Prepare") + total(calls, "Decide") + total(calls, "Query")
	}
	return sum, nil
}

func scrape(ctx context.Context, address string) (map[string]*dto.MetricFamily, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("metrics of %s: %w", address, err)
	}
	defer r.Body.Close()
	p := expfmt.NewTextParser(model.UTF8Validation)
	return p.TextToMetricFamilies(r.Body)
}

// total adds up a metric; with a method, only its values of that method.
func total(f *dto.MetricFamily, method string) float64 {
	var sum float64
	for _, m := range f.GetMetric() {
		if method == "" || len(m.GetLabel()) == 1 && m.GetLabel()[0].GetValue() == method {
			sum += m.GetCounter().GetValue()
		}
	}
	return sum
}
