package dev

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
)

// Status is the cluster at this moment. docs/dev-status.md describes its JSON, which only grows.
type Status struct {
	View    string         `json:"view"`
	Servers []ServerStatus `json:"servers"`
	Mounts  []MountStatus  `json:"mounts"`
	S3      S3Status       `json:"s3"`
}

// ServerStatus is one server. The numbers are 0 and ViewVersion is empty while it does not answer.
type ServerStatus struct {
	Name              string `json:"name"`
	State             string `json:"state"` // running | stopped
	PID               int    `json:"pid"`   // 0 when stopped
	Address           string `json:"address"`
	Metrics           string `json:"metrics"`
	Ready             bool   `json:"ready"`
	ViewVersion       string `json:"viewVersion"` // epoch.version
	Inodes            uint64 `json:"inodes"`
	Chunks            uint64 `json:"chunks"`
	CachedBytes       uint64 `json:"cachedBytes"`
	DirtyBytes        uint64 `json:"dirtyBytes"`
	DirtyFiles        uint64 `json:"dirtyFiles"`
	OutstandingWrites uint64 `json:"outstandingWrites"`
	Uploads           uint64 `json:"uploads"`
	LostFiles         uint64 `json:"lostFiles"`       // whose latest content was lost with a disk
	Error             string `json:"error,omitempty"` // why a running server did not answer
}

// MountStatus is one mount.
type MountStatus struct {
	Name           string `json:"name"`
	Mountpoint     string `json:"mountpoint"`
	State          string `json:"state"` // running | stopped
	PID            int    `json:"pid"`
	Passthrough    string `json:"passthrough"`              // on | off; empty while it does not answer
	PassthroughWhy string `json:"passthroughWhy,omitempty"` // why it is off
	Consistency    string `json:"consistency"`
	OpenFiles      int    `json:"openFiles"`
	CachedBytes    int64  `json:"cachedBytes"`
	DirtyBytes     int64  `json:"dirtyBytes"`
	Error          string `json:"error,omitempty"`
}

// S3Status is external storage. State and PID are those of the local S3 server.
type S3Status struct {
	Endpoint string         `json:"endpoint"`
	State    string         `json:"state,omitempty"`
	PID      int            `json:"pid,omitempty"`
	Buckets  []BucketStatus `json:"buckets"`
}

// BucketStatus is one bucket. Keys are told only of the local S3 server.
type BucketStatus struct {
	DirName    string `json:"dirName"`
	BucketName string `json:"bucketName"`
	Endpoint   string `json:"endpoint,omitempty"` // when it is not S3Status.Endpoint
	AccessKey  string `json:"accessKey,omitempty"`
	SecretKey  string `json:"secretKey,omitempty"`
}

const (
	running = "running"
	stopped = "stopped"
)

// ReadStatus asks all processes at once and returns within 2 s, whatever is dead. It needs no lock: another command may be at work.
func ReadStatus(ctx context.Context, dir string) (Status, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Status{}, err
	}
	if err := claim(dir, false); err != nil {
		return Status{}, err
	}
	c := &Cluster{dir: dir}
	if c.spec, err = loadSpec(dir); err != nil {
		return Status{}, err
	}
	if c.isNew() {
		return Status{}, errNotUp(dir)
	}
	return c.status(ctx), nil
}

// Status is ReadStatus of an open cluster.
func (c *Cluster) Status(ctx context.Context) Status { return c.status(ctx) }

func (c *Cluster) status(ctx context.Context) Status {
	ctx, cancel := context.WithTimeout(ctx, statusDeadline)
	defer cancel()
	st := Status{Servers: make([]ServerStatus, len(c.spec.Servers)), Mounts: make([]MountStatus, len(c.spec.Mounts)), S3: c.s3Status()}
	views := make([]objcache.ViewVersion, len(c.spec.Servers))
	var wg sync.WaitGroup
	for i, s := range c.spec.Servers {
		wg.Go(func() { st.Servers[i], views[i] = serverMember{c, s}.status(ctx) })
	}
	for i, m := range c.spec.Mounts {
		wg.Go(func() { st.Mounts[i] = mountMember{c, m}.status(ctx) })
	}
	wg.Wait()
	newest := objcache.ViewVersion{}
	for _, v := range views {
		if newest.Less(v) {
			newest, st.View = v, v.String()
		}
	}
	return st
}

func stateOf(m member) (string, int) {
	if p := read(m.dir()); p.running() {
		return running, p.PID
	}
	return stopped, 0
}

func (s serverMember) status(ctx context.Context) (ServerStatus, objcache.ViewVersion) {
	st := ServerStatus{Name: s.spec.Name, Address: s.spec.Address, Metrics: s.spec.Metrics}
	if st.State, st.PID = stateOf(s); st.State == stopped {
		return st, objcache.ViewVersion{}
	}
	r, err := s.ask(ctx)
	if err != nil {
		st.Error = err.Error()
		return st, objcache.ViewVersion{}
	}
	v := objcache.ViewVersion{Epoch: r.GetViewEpoch(), Version: r.GetViewVersion()}
	st.Ready, st.ViewVersion = r.GetReady(), v.String()
	st.Inodes, st.Chunks, st.CachedBytes = r.GetInodes(), r.GetChunks(), r.GetCachedBytes()
	st.DirtyBytes, st.DirtyFiles = r.GetDirtyBytes(), r.GetDirtyFiles()
	st.OutstandingWrites, st.Uploads, st.LostFiles = r.GetOutstandingWrites(), r.GetUploads(), r.GetLosses()
	return st, v
}

func (s serverMember) ask(ctx context.Context) (*rpc.StatusReply, error) {
	conn, err := dial(s.spec.Address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return askStatus(ctx, conn)
}

func (m mountMember) status(ctx context.Context) MountStatus {
	st := MountStatus{Name: m.name(), Mountpoint: m.spec.Mountpoint, Consistency: m.c.spec.Settings.Consistency}
	if st.State, st.PID = stateOf(m); st.State == stopped {
		return st
	}
	if err := m.ask(ctx, &st); err != nil {
		st.Error = err.Error()
	}
	return st
}

// ask fills in what the mount process says of itself on its socket.
func (m mountMember) ask(ctx context.Context, st *MountStatus) error {
	r, err := m.readRecord()
	if err != nil {
		return err
	}
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", r.Socket)
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://mount/status", nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var said struct {
		Passthrough struct {
			On  bool   `json:"on"`
			Why string `json:"why"`
		} `json:"passthrough"`
		OpenFiles int `json:"openFiles"`
		Cache     struct {
			Bytes int64 `json:"bytes"`
			Dirty int64 `json:"dirty"`
		} `json:"cache"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&said); err != nil {
		return err
	}
	st.Passthrough, st.PassthroughWhy = "off", said.Passthrough.Why
	if said.Passthrough.On {
		st.Passthrough, st.PassthroughWhy = "on", ""
	}
	st.OpenFiles, st.CachedBytes, st.DirtyBytes = said.OpenFiles, said.Cache.Bytes, said.Cache.Dirty
	return nil
}

func (c *Cluster) s3Status() S3Status {
	st := S3Status{Buckets: []BucketStatus{}}
	if c.spec.S3 != nil {
		st.Endpoint = c.spec.S3.endpoint()
		st.State, st.PID = stateOf(s3Member{c})
	} else if len(c.spec.Buckets) > 0 {
		st.Endpoint = c.spec.Buckets[0].Endpoint
	}
	for _, b := range c.spec.Buckets {
		v := BucketStatus{DirName: b.DirName, BucketName: b.BucketName}
		if b.Endpoint != st.Endpoint {
			v.Endpoint = b.Endpoint
		}
		if c.spec.S3 != nil {
			v.AccessKey, v.SecretKey = b.AccessKey, b.SecretKey
		}
		st.Buckets = append(st.Buckets, v)
	}
	return st
}
