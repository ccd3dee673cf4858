package external_test

import (
	"io"
	"strings"
	"testing"

	"github.com/objcache/objcache/server/external"
	"github.com/objcache/objcache/server/external/memstore"
	"github.com/prometheus/client_golang/prometheus"
)

// gathered is every counter as "name{labels}" and every histogram's count.
func gathered(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			name := strings.TrimPrefix(f.GetName(), "objcache_external_") + " " + strings.Join(labels, " ")
			if h := m.GetHistogram(); h != nil {
				all[name] = float64(h.GetSampleCount())
				continue
			}
			all[name] = m.GetCounter().GetValue()
		}
	}
	return all
}

func TestMetrics_CountEveryAttemptAndByte(t *testing.T) {
	reg := prometheus.NewRegistry()
	fake := memstore.New(memstore.Config{})
	s := external.NewMetrics(reg).Wrap(fake)
	fake.Inject(memstore.Fault{Op: external.OpPut, Times: 1, Before: memstore.Unavailable})
	if err := put(t.Context(), s, "k", "hello"); err == nil {
		t.Fatal("no error")
	}
	if err := put(t.Context(), s, "k", "hello"); err != nil {
		t.Fatal(err)
	}
	cut := int64(2)
	fake.Inject(memstore.Fault{Op: external.OpGet, Times: 1, Cut: &cut})
	for range 2 {
		r, _, err := s.Get(t.Context(), "k", 0, -1, "")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.ReadAll(r) // the first fails, as injected
		_ = r.Close()
		_ = r.Close()
	}
	if _, _, err := s.Get(t.Context(), "gone", 0, -1, ""); err == nil {
		t.Fatal("no error")
	}
	got := gathered(t, reg)
	for name, want := range map[string]float64{
		"requests_total Put unavailable":   1,
		"requests_total Put ok":            1,
		"requests_total Get unavailable":   1,
		"requests_total Get ok":            1,
		"requests_total Get not_exist":     1,
		"request_duration_seconds Put":     2,
		"request_duration_seconds Get":     3,
		"bytes_total written":              5,
		"bytes_total read":                 7,
		"requests_total Head ok":           0,
		"requests_total Get precondition":  0,
		"request_duration_seconds Unknown": 0,
	} {
		if got[name] != want {
			t.Errorf("%s: got %v, want %v", name, got[name], want)
		}
	}
}
