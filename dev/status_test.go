package dev

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

var sample = Status{
	View: "1.1",
	Servers: []ServerStatus{
		{Name: "server-0", State: running, PID: 42, Address: "127.0.0.1:7000", Metrics: "127.0.0.1:7001", Ready: true, ViewVersion: "1.1", Inodes: 3, Chunks: 2,
			CachedBytes: 5 << 20, DirtyBytes: 1024, DirtyFiles: 1, OutstandingWrites: 4, Uploads: 6, LostFiles: 8},
		{Name: "server-1", State: stopped, Address: "127.0.0.1:7002", Metrics: "127.0.0.1:7003"},
	},
	Mounts: []MountStatus{{Name: "mount-0", Mountpoint: "/mnt", State: running, PID: 43, Passthrough: "on", Consistency: "close-to-open", OpenFiles: 1, CachedBytes: 7}},
	S3: S3Status{Endpoint: "http://127.0.0.1:9000", State: running, PID: 44,
		Buckets: []BucketStatus{{DirName: "data", BucketName: "bucket", AccessKey: "K", SecretKey: "S"}}},
}

// The JSON is an interface: names may be added, never changed.
func TestStatus_JSONIsStable(t *testing.T) {
	got, err := json.MarshalIndent(sample, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "status.json", append(got, '\n'))
}

func TestStatus_TableIsReadable(t *testing.T) {
	var b bytes.Buffer
	if err := sample.Print(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "status.txt", b.Bytes())
}

// golden compares with a file in testdata; OBJCACHE_GOLDEN=write replaces it.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if os.Getenv("OBJCACHE_GOLDEN") == "write" {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is now:\n%s", name, got)
	}
}

func TestStatus_AnswersInTimeWhenServersHang(t *testing.T) {
	c := open(t)
	if err := c.plan(UpRequest{Settings: c.Settings(), Buckets: []Bucket{{DirName: "d", BucketName: "b", SecretKey: "theirs"}}}); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts and says nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	for i := range c.spec.Servers {
		c.spec.Servers[i].Address = l.Addr().String()
		s := serverMember{c, c.spec.Servers[i]}
		d, err := launch(s.dir(), nil, "/bin/sh", "-c", "exec sleep 600")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := d.kill(); err != nil {
				t.Error(err)
			}
		})
	}
	if err := c.saveSpec(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	st, err := ReadStatus(t.Context(), c.dir)
	if took := time.Since(began); err != nil || took > 2*time.Second {
		t.Errorf("after %v: %v", took, err)
	}
	if s := st.Servers[0]; s.State != running || s.PID == 0 || s.Error == "" || s.ViewVersion != "" {
		t.Errorf("a server that hangs: %+v", s)
	}
	if m := st.Mounts[0]; m.State != stopped {
		t.Errorf("a mount that was never started: %+v", m)
	}
	if st.S3.Buckets[0].SecretKey != "" {
		t.Error("the keys of somebody's S3 are told")
	}
}
