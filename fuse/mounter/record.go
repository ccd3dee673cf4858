package mounter

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/objcache/objcache"
)

// Record tells other processes of a mount: which device it is and where its servers are.
type Record struct {
	Mountpoint string   `json:"mountpoint"`
	Major      uint32   `json:"major"` // st_dev of everything in it
	Minor      uint32   `json:"minor"`
	PID        int      `json:"pid"`
	Servers    []string `json:"servers"`
	Socket     string   `json:"socket"`           // answers GET /status and /metrics over HTTP
	CAFile     string   `json:"caFile,omitempty"` // how to talk to the servers; absolute paths
	CertFile   string   `json:"certFile,omitempty"`
	KeyFile    string   `json:"keyFile,omitempty"`
}

// RuntimeDir is where records and sockets are: $XDG_RUNTIME_DIR/objcache, else /run/objcache for root and a directory in the temporary one for others.
func RuntimeDir() string {
	if d := os.Getenv("XDG_RUNTIME_DIR"); d != "" {
		return filepath.Join(d, "objcache")
	}
	if os.Geteuid() == 0 {
		return "/run/objcache"
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("objcache-%d", os.Getuid()))
}

// Device is the st_dev of everything in the mount. It asks the mount table, not the mount.
func (m *Live) Device() (major, minor uint32) { return 0, m.minor } // FUSE file systems have anonymous devices: major 0

func recordPath(major, minor uint32) string {
	return filepath.Join(RuntimeDir(), fmt.Sprintf("%d-%d.json", major, minor))
}

// WriteRecord makes a mount known. A record that a killed process left for the same device is replaced.
func WriteRecord(r Record) error { return r.WriteTo(recordPath(r.Major, r.Minor)) }

// WriteTo writes the record to a file of the caller's choice, in one step.
func (r Record) WriteTo(path string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return objcache.Errorf(objcache.IO, "record of the mount: %w", err)
	}
	tmp := fmt.Sprintf("%s.%d", path, os.Getpid())
	if err := os.WriteFile(tmp, append(b, '\n'), 0o600); err != nil {
		return objcache.Errorf(objcache.IO, "record of the mount: %w", err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return objcache.Errorf(objcache.IO, "record of the mount: %w", err)
	}
	return nil
}

// RemoveRecord makes a mount unknown again; a record that is not there is no error.
func RemoveRecord(r Record) error {
	if err := os.Remove(recordPath(r.Major, r.Minor)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return objcache.Errorf(objcache.IO, "record of the mount: %w", err)
	}
	return nil
}

// Find returns the record of the mount that path is in, and path's inode number. Errors: NotExist when path is in no mount of this user.
func Find(path string) (Record, objcache.Ino, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return Record{}, 0, objcache.Errorf(objcache.NotExist, "%s: %w", path, err)
	}
	b, err := os.ReadFile(recordPath(unix.Major(st.Dev), unix.Minor(st.Dev)))
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, 0, objcache.Errorf(objcache.NotExist, "mount of objcache at %s (looked for its record in %s)", path, RuntimeDir())
	}
	var r Record
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		return Record{}, 0, objcache.Errorf(objcache.IO, "record of the mount at %s: %w", path, err)
	}
	return r, objcache.Ino(st.Ino), nil
}
