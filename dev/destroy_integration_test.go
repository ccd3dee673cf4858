//go:build integration

package dev_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/objcache/objcache/test/wait"
)

// copyAge is how old the copy of a server's rows is that its neighbour has, seconds.
func copyAge(t *testing.T, metrics string) float64 {
	t.Helper()
	r, err := http.Get("http://" + metrics + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "objcache_server_mirror_age_seconds "); ok {
			age, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
			if err != nil {
				t.Fatal(err)
			}
			return age
		}
	}
	t.Fatal("no mirror_age_seconds among the metrics")
	return 0
}

type losses struct {
	Files []struct {
		Path, Kept string
	} `json:"files"`
	Rebuilt []struct {
		Server   string `json:"server"`
		Compared bool   `json:"compared"`
	} `json:"rebuilt"`
	Losing int `json:"losing"`
}

func (p program) losses() (l losses) {
	p.t.Helper()
	if err := json.Unmarshal(p.run("losses", "-o", "json"), &l); err != nil {
		p.t.Fatal(err)
	}
	return l
}

func TestDestroy_ADisksLossIsNamed(t *testing.T) {
	p := build(t)
	p.run("up", "--flush-interval", "1h")
	top := filepath.Join(p.mnt(), "objcache")
	first, second := map[string][]byte{}, map[string][]byte{}
	write := func(into map[string][]byte, seed uint64) {
		rng := rand.NewChaCha8([32]byte{byte(seed)})
		for d := range 9 {
			for f := range 3 {
				name := filepath.Join(fmt.Sprint("d", d), fmt.Sprint("f", f))
				b := make([]byte, 60_000)
				_, _ = rng.Read(b)
				if err := os.MkdirAll(filepath.Join(top, filepath.Dir(name)), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(top, name), b, 0o644); err != nil {
					t.Fatal(err)
				}
				into[name] = b
			}
		}
	}
	write(first, 1)
	p.run("flush")
	write(second, 2)
	written := time.Now()
	for _, s := range p.status().Servers {
		wait.Until(t, 30*time.Second, "a copy of everything", func() bool {
			age := copyAge(t, s.Metrics)
			return age >= 0 && age < time.Since(written).Seconds()
		})
	}
	p.run("kill", "--destroy", "server-1")
	p.run("start", "server-1")
	var l losses
	wait.Until(t, time.Minute, "a cluster that knows its losses", func() bool {
		l = p.losses()
		return l.Losing == 0 && len(l.Rebuilt) == 1 && l.Rebuilt[0].Compared
	})
	told := map[string]bool{}
	for _, f := range l.Files {
		told[strings.TrimPrefix(f.Path, "objcache/")] = true
	}
	for _, name := range slices.Sorted(maps.Keys(second)) {
		want := second[name]
		if told[name] {
			want = first[name]
		}
		if got, err := os.ReadFile(filepath.Join(top, name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s, told lost: %v: %d bytes that are not as told: %v", name, told[name], len(got), err)
		}
	}
	if len(told) == 0 || len(told) == len(second) {
		t.Errorf("%d of %d files are told lost", len(told), len(second))
	}
	if st := p.status(); st.Servers[0].LostFiles+st.Servers[1].LostFiles+st.Servers[2].LostFiles != uint64(len(told)) {
		t.Errorf("status counts other losses than %d: %+v", len(told), st.Servers)
	}
	if out := p.run("losses"); !bytes.Contains(out, []byte("server-1 lost its disk")) || !bytes.Contains(out, []byte("as last persisted")) {
		t.Errorf("losses printed\n%s", out)
	}
	p.run("losses", "--forget")
	if out := p.run("losses"); !bytes.Contains(out, []byte("No file is known")) {
		t.Errorf("after --forget, losses printed\n%s", out)
	}
	p.run("flush")
	p.run("fsck")
}
