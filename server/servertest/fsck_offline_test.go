//go:build integration

package servertest

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/objcache/objcache/server"
	"github.com/objcache/objcache/server/fsck"
	"github.com/objcache/objcache/server/fsck/offline"
)

// copied are the state directories as they would be if all servers were killed now, while nothing is under way.
func (r *rig) copied() (dirs []string) {
	r.t.Helper()
	to := r.t.TempDir()
	for i, c := range r.cl.Configs {
		d := filepath.Join(to, fmt.Sprint(i))
		if err := os.CopyFS(d, os.DirFS(c.StateDir)); err != nil {
			r.t.Fatal(err)
		}
		dirs = append(dirs, d)
	}
	return dirs
}

// offlineRig is a cluster with clean and dirty files, linked, renamed and removed ones.
func offlineRig(t *testing.T) (*rig, []byte) {
	r := newRig(t, 3, func(c *server.Config) { c.FlushInterval = server.Duration(time.Hour) })
	d := r.mkdir(r.b, "d")
	r.write(d, "clean", random(300<<10, 1))
	gone := r.write(d, "gone", random(400<<10, 2))
	r.flush()
	dirty := random(900<<10, 3)
	r.write(d, "dirty", dirty)
	r.write(d, "small", []byte("small"))
	if err := r.c.Rename(t.Context(), d, "small", r.b, "renamed", 0); err != nil {
		t.Fatal(err)
	}
	if _, err := r.c.Link(t.Context(), r.lookup("d", "dirty").Ino, r.b, "link"); err != nil {
		t.Fatal(err)
	}
	if err := r.c.Unlink(t.Context(), d, "gone"); err != nil {
		t.Fatal(gone, err)
	}
	return r, dirty
}

// files calls f for the files of the state directories.
func files(t *testing.T, dirs []string, f func(path string)) {
	t.Helper()
	for _, d := range dirs {
		err := filepath.WalkDir(d, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.Type().IsRegular() {
				f(path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// contents are all files, to see that nothing changes.
func contents(t *testing.T, dirs []string) string {
	t.Helper()
	var b strings.Builder
	files(t, dirs, func(path string) {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s %x\n", path, sha256.Sum256(raw))
	})
	return b.String()
}

// flip changes one byte of a file.
func flip(t *testing.T, path string, at int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	var b [1]byte
	if _, err := f.ReadAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	b[0]++
	if _, err := f.WriteAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func checkOffline(t *testing.T, dirs []string, verify bool) []fsck.Finding {
	t.Helper()
	found, err := offline.Check(t.Context(), dirs, offline.Options{Verify: verify})
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(found, func(f fsck.Finding) bool { return f.Severity == fsck.Note })
}

func TestFsckOffline_TheDisksOfKilledServersAreSound(t *testing.T) {
	r, _ := offlineRig(t)
	dirs := r.copied()
	before := contents(t, dirs)
	for _, verify := range []bool{false, true} {
		if found := checkOffline(t, dirs, verify); len(found) > 0 {
			t.Errorf("found%s", describe(found))
		}
	}
	if contents(t, dirs) != before {
		t.Error("the check changed files")
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(dirs[0]), ".objcache-fsck-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if found := checkOffline(t, dirs[1:2], false); len(found) != 2 || found[0].Code != "group-not-read" {
		t.Errorf("one directory of three: found%s", describe(found))
	}
	r.cl.stopAll()
	for _, c := range r.cl.Configs {
		if found := checkOffline(t, []string{c.StateDir}, true); len(found) != 2 {
			t.Errorf("%s: found%s", c.StateDir, describe(found))
		}
	}
}

func TestFsckOffline_NamesDamage(t *testing.T) {
	r, dirty := offlineRig(t)
	logs := func(dirs []string, f func(path string)) {
		files(t, dirs[:1], func(path string) {
			if strings.HasSuffix(path, ".wal") {
				f(path)
			}
		})
	}
	for _, c := range []struct {
		name   string
		verify bool
		plant  func(dirs []string)
		want   string // code, path and a word
		code   fsck.Code
		path   string
	}{
		{"a flipped byte of a dirty file", true, func(dirs []string) {
			files(t, dirs, func(path string) {
				if raw, err := os.ReadFile(path); err != nil {
					t.Fatal(err)
				} else if i := bytes.Index(raw, dirty[70<<10:][:1000]); i >= 0 && filepath.Base(filepath.Dir(path)) == "chunks" {
					flip(t, path, int64(i))
				}
			})
		}, "65536 bytes at offset 65536 are not", "extent-rotten", "/data/d/dirty"},
		{"a file of bytes that is gone", false, func(dirs []string) {
			files(t, dirs, func(path string) {
				if raw, err := os.ReadFile(path); err != nil {
					t.Fatal(err)
				} else if filepath.Base(filepath.Dir(path)) == "chunks" && bytes.Contains(raw, dirty[70<<10:][:1000]) {
					if err := os.Remove(path); err != nil {
						t.Fatal(err)
					}
				}
			})
		}, "is missing", "extent-rotten", "/data/d/dirty"},
		{"a flipped byte in the log", false, func(dirs []string) { logs(dirs, func(path string) { flip(t, path, 200) }) },
			"is damaged in the batch", "disk-damaged", ""},
		{"a segment of the log that is gone", false, func(dirs []string) {
			logs(dirs, func(path string) {
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
			})
		}, "is missing", "disk-damaged", ""},
		{"a log without its list of segments", false, func(dirs []string) {
			if err := os.Remove(filepath.Join(dirs[0], "group-1", "log", "meta")); err != nil {
				t.Fatal(err)
			}
		}, "meta is missing", "disk-damaged", ""},
		{"rows that are gone", false, func(dirs []string) {
			files(t, dirs[:1], func(path string) {
				if strings.HasPrefix(filepath.Base(path), "MANIFEST") {
					if err := os.Truncate(path, 0); err != nil {
						t.Fatal(err)
					}
				}
			})
		}, "rows in", "disk-damaged", ""},
		{"a stray file", false, func(dirs []string) {
			if err := os.WriteFile(filepath.Join(dirs[0], "group-1", "chunks", "notes.txt"), []byte("hello"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "notes.txt is not a file of this program, 5 bytes", "file-foreign", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			dirs := r.copied()
			c.plant(dirs)
			found := checkOffline(t, dirs, c.verify)
			ok := slices.ContainsFunc(found, func(f fsck.Finding) bool {
				return f.Code == c.code && f.Path == c.path && strings.Contains(f.Text, c.want)
			})
			if !ok {
				t.Errorf("found%s, want %s %s: %s", describe(found), c.code, c.path, c.want)
			}
		})
	}
}

// TestFsckOffline_BytesThatNoRowNames: what was staged and never committed is told, with its size, and is no damage: the next start gives it back.
func TestFsckOffline_BytesThatNoRowNames(t *testing.T) {
	r, _ := offlineRig(t)
	dirs := r.copied()
	if err := os.WriteFile(filepath.Join(dirs[0], "group-1", "chunks", "00000000000000aa.c"), make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	found, err := offline.Check(t.Context(), dirs, offline.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(found, func(f fsck.Finding) bool {
		return f.Code == "file-nameless" && f.Bytes == 4096 && f.Severity == fsck.Note
	}) {
		t.Errorf("found%s", describe(found))
	}
}

func TestFsckOffline_RefusesWhatItCannotCheck(t *testing.T) {
	r, _ := offlineRig(t)
	for want, dirs := range map[string][]string{
		"its server runs":    {r.cl.Configs[0].StateDir},
		"no state directory": {t.TempDir()},
	} {
		if _, err := offline.Check(t.Context(), dirs, offline.Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", dirs, err, want)
		}
	}
}
