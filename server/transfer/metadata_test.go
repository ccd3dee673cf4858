package transfer

import (
	"bytes"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/record"
)

func listed(mode uint32) *record.Inode {
	return &record.Inode{Mode: mode, Uid: 7, Gid: 8, Atime: 1e9, Mtime: 1e9, Ctime: 1e9, DefaultAttrs: true}
}

func TestUnderstand_ModesOfEveryTool(t *testing.T) {
	const file, dir = objcache.ModeRegular | 0o644, objcache.ModeDir | 0o755
	for _, c := range []struct {
		name, mode string
		rdev       string
		now, want  uint32
		target     string
	}{
		{name: "s3fs file", mode: "33184", now: file, want: objcache.ModeRegular | 0o640},
		{name: "s3fs directory", mode: "16832", now: dir, want: objcache.ModeDir | 0o700},
		{name: "s3fs symlink", mode: "41471", now: file, want: objcache.ModeSymlink | 0o777, target: "x"},
		{name: "s3fs symlink whose body is too long", mode: "41471", now: file, want: file},
		{name: "s3fs fifo", mode: "4516", now: file, want: objcache.ModeFifo | 0o644},
		{name: "s3fs device: which one it does not say", mode: "8612", now: file, want: file},
		{name: "our device", mode: "8612", rdev: "259", now: file, want: objcache.ModeChar | 0o644},
		{name: "rclone file, octal", mode: "100640", now: file, want: objcache.ModeRegular | 0o640},
		{name: "rclone directory, octal", mode: "40750", now: dir, want: objcache.ModeDir | 0o750},
		{name: "permissions only", mode: "420", now: file, want: objcache.ModeRegular | 0o644},
		{name: "a directory's mode on a file", mode: "16877", now: file, want: file},
		{name: "a file's mode on a directory", mode: "33188", now: dir, want: dir},
		{name: "a fifo's mode on a directory", mode: "4516", now: dir, want: dir},
		{name: "rubbish", mode: "rwxr-xr-x", now: file, want: file},
		{name: "negative", mode: "-1", now: file, want: file},
		{name: "huge", mode: "99999999999999999999", now: file, want: file},
	} {
		in := listed(c.now)
		understand(in, map[string]string{"mode": c.mode, "objcache-rdev": c.rdev}, c.target)
		if in.GetMode() != c.want {
			t.Errorf("%s: mode %o, want %o", c.name, in.GetMode(), c.want)
		}
		if changed := c.want != c.now || c.mode == "420"; in.GetDefaultAttrs() == changed {
			t.Errorf("%s: default attributes %v", c.name, in.GetDefaultAttrs())
		}
	}
}

func TestRewritten_ByTheTimesOfListings(t *testing.T) {
	for _, c := range []struct {
		noted, listed int64
		want          bool
	}{
		{5e9, 5e9, false}, {5e9, 5e9 + 1e6, false}, {5e9, 6e9, true}, {5e9, 4e9, true}, {0, 5e9, true}, {1, 5e9, true},
		{-100e9, 100e9, false}, {-100e9, 50e9, false}, {-100e9, 104e9, false}, {-100e9, 106e9, true},
	} {
		if got := rewritten(c.noted, c.listed); got != c.want {
			t.Errorf("noted %d, listed %d: %v", c.noted, c.listed, got)
		}
	}
}

func TestUnderstand_Times(t *testing.T) {
	for s, want := range map[string]int64{
		"1577934245": 1577934245e9, "1577934245.123456789": 1577934245123456789, "1577934245.5": 1577934245500000000, "0": 0,
		"1577934245.1234567891": 1577934245123456789, "2020-01-02T03:04:05.123456789Z": 1577934245123456789,
		"": 1e9, "-5": 1e9, "yesterday": 1e9, "1.-5": 1e9, "99999999999999": 1e9,
	} {
		in := listed(objcache.ModeRegular | 0o644)
		understand(in, map[string]string{"mtime": s}, "")
		if in.GetMtime() != want {
			t.Errorf("mtime %q is %v, want %v", s, time.Unix(0, in.GetMtime()), time.Unix(0, want))
		}
	}
}

func TestMetadata_IsUnderstood(t *testing.T) {
	want := &record.Inode{
		Ino: 5, Mode: objcache.ModeRegular | 0o4751, Uid: 1 << 31, Gid: 3, Atime: 12e9 + 1, Mtime: 13e9, Ctime: 14e9 + 5e8,
		Xattrs: map[string][]byte{"user.a": []byte("a + b/ü\x00"), "user.empty": {}},
	}
	got := listed(objcache.ModeRegular | 0o644)
	got.Ino = 5
	understand(got, metadata(want, nil), "")
	if got.GetMode() != want.GetMode() || got.GetUid() != want.GetUid() || got.GetGid() != want.GetGid() || got.GetAtime() != want.GetAtime() ||
		got.GetMtime() != want.GetMtime() || got.GetCtime() != want.GetCtime() || got.GetDefaultAttrs() {
		t.Errorf("got %v, want %v", got, want)
	}
	if !maps.EqualFunc(got.GetXattrs(), want.GetXattrs(), bytes.Equal) {
		t.Errorf("xattrs %q, want %q", got.GetXattrs(), want.GetXattrs())
	}
}

func TestMetadata_FitsAnObject(t *testing.T) {
	for _, n := range []int{10, 1000, 2000} {
		in := listed(objcache.ModeRegular | 0o644)
		in.Xattrs = map[string][]byte{"user." + strings.Repeat("n", 40): bytes.Repeat([]byte("v"), n)}
		m, total := metadata(in, &record.Intent{Tx: &record.TxID{Client: 1 << 63, Seq: 1 << 63, TxSeq: 1 << 63}}), 0
		for k, v := range m {
			total += len(k) + len(v)
		}
		if total > 2048 || (m["xattr"] != "") != (n < 2000) {
			t.Errorf("value of %d bytes: %d bytes of metadata, xattr of %d", n, total, len(m["xattr"]))
		}
	}
}
