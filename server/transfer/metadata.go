package transfer

import (
	"encoding/json"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/record"
)

// Keys of user metadata. Those without a prefix are what s3fs reads and writes; rclone and others share mtime.
const (
	metaMode  = "mode" // st_mode, decimal
	metaUID   = "uid"
	metaGID   = "gid"
	metaMtime = "mtime" // seconds, decimal, with a fraction
	metaAtime = "atime"
	metaCtime = "ctime"
	metaXattr = "xattr" // JSON, name to base64 of the value; the whole URL-encoded
	metaIno   = "objcache-ino"
	metaRdev  = "objcache-rdev" // of a device, decimal
)

// maxMetadata is how many bytes of keys and values S3 takes as user metadata of one object.
const maxMetadata = 2048

// metadata is what goes into an object's user metadata. Extended attributes that do not fit are in the directory's table only.
func metadata(in *record.Inode, it *record.Intent) map[string]string {
	m := map[string]string{
		metaMode: strconv.FormatUint(uint64(in.GetMode()), 10), metaUID: strconv.FormatUint(uint64(in.GetUid()), 10),
		metaGID: strconv.FormatUint(uint64(in.GetGid()), 10), metaMtime: seconds(in.GetMtime()), metaAtime: seconds(in.GetAtime()),
		metaCtime: seconds(in.GetCtime()), metaIno: strconv.FormatUint(in.GetIno(), 10),
	}
	if it != nil {
		m[metaTx] = txString(it.GetTx())
	}
	if in.GetRdev() != 0 {
		m[metaRdev] = strconv.FormatUint(uint64(in.GetRdev()), 10)
	}
	total := 0
	for k, v := range m {
		total += len(k) + len(v)
	}
	if len(in.GetXattrs()) > 0 {
		if b, err := json.Marshal(in.GetXattrs()); err == nil {
			v := strings.ReplaceAll(url.QueryEscape(string(b)), "+", "%20") // a space, as s3fs writes it
			if total+len(metaXattr)+len(v) <= maxMetadata {
				m[metaXattr] = v
			}
		}
	}
	return m
}

func seconds(ns int64) string {
	s := strconv.FormatInt(ns/1e9, 10)
	if f := ns % 1e9; f > 0 {
		d := strconv.FormatInt(1e9+f, 10)
		s += "." + d[1:]
	}
	return s
}

// hasOwner reports whether user metadata says more than times: who owns the object and what it is. Tools that say so say it of everything they write.
func hasOwner(m map[string]string) bool {
	return m[metaMode] != "" || m[metaUID] != "" || m[metaGID] != "" || m[metaXattr] != ""
}

// understand gives an inode the attributes that an object's user metadata tells; target is the body of what may be a symlink. What cannot be parsed, or
// contradicts the kind of the object, is as if it were not there.
func understand(in *record.Inode, m map[string]string, target string) {
	understood := false
	if mode, ok := modeOf(m, in.GetMode(), target); ok {
		in.Mode, understood = mode, true
		switch mode & objcache.ModeMask {
		case objcache.ModeSymlink:
			in.Target = target
		case objcache.ModeChar, objcache.ModeBlock:
			in.Rdev, _ = number(m[metaRdev])
		}
	}
	for key, to := range map[string]*uint32{metaUID: &in.Uid, metaGID: &in.Gid} {
		if id, ok := number(m[key]); ok {
			*to, understood = id, true
		}
	}
	for key, to := range map[string]*int64{metaMtime: &in.Mtime, metaAtime: &in.Atime, metaCtime: &in.Ctime} {
		if ns, ok := timeOf(m[key]); ok {
			*to, understood = ns, true
		}
	}
	if x := xattrsOf(m[metaXattr]); len(x) > 0 {
		in.Xattrs, understood = x, true
	}
	if understood {
		in.DefaultAttrs = false
	}
}

func number(s string) (uint32, bool) {
	n, err := strconv.ParseUint(s, 10, 32)
	return uint32(n), err == nil
}

// modeOf is the st_mode of an object that without metadata would have the mode now. s3fs writes it in decimal, rclone in octal: a number that makes no
// sense in one is tried in the other. The type counts only where the key allows it: a key ending with "/" is a directory, and no other is one.
func modeOf(m map[string]string, now uint32, target string) (uint32, bool) {
	for _, base := range []int{10, 8} {
		n, err := strconv.ParseUint(m[metaMode], base, 32)
		if err != nil || n > 0o177777 {
			continue
		}
		mode := uint32(n)
		isDir := now&objcache.ModeMask == objcache.ModeDir
		switch kind := mode & objcache.ModeMask; kind {
		case 0, now & objcache.ModeMask:
			return now&objcache.ModeMask | mode&0o7777, true
		case objcache.ModeFifo, objcache.ModeSocket:
			return mode, !isDir
		case objcache.ModeSymlink:
			if !isDir && target != "" && base == 10 { // rclone keeps symlinks in files of their own kind
				return mode, true
			}
		case objcache.ModeChar, objcache.ModeBlock:
			if _, ok := number(m[metaRdev]); ok && !isDir { // s3fs does not keep which device it is
				return mode, true
			}
		}
	}
	return 0, false
}

// saysSymlink reports whether an object's body is the target of a symlink.
func saysSymlink(m map[string]string, size int64) bool {
	n, ok := number(m[metaMode])
	return ok && n <= 0o177777 && n&objcache.ModeMask == objcache.ModeSymlink && size > 0 && size < maxTarget
}

// maxTarget is the longest target of a symlink, in bytes, and its terminating zero.
const maxTarget = 4096

// timeOf parses seconds since 1970 with or without a fraction, as s3fs and rclone write them, or RFC 3339 as rclone does for atime; nanoseconds.
func timeOf(s string) (int64, bool) {
	whole, fraction, _ := strings.Cut(s, ".")
	sec, err := strconv.ParseInt(whole, 10, 64)
	if err != nil {
		t, err := time.Parse(time.RFC3339Nano, s)
		return t.UnixNano(), err == nil
	}
	const most = (1<<63-1)/1_000_000_000 - 1
	if sec < 0 || sec > most {
		return 0, false
	}
	ns := int64(0)
	if fraction != "" {
		if ns, err = strconv.ParseInt((fraction + "000000000")[:9], 10, 64); err != nil || ns < 0 {
			return 0, false
		}
	}
	return sec*1e9 + ns, true
}

func xattrsOf(s string) map[string][]byte {
	plain, err := url.PathUnescape(s)
	if err != nil || plain == "" {
		return nil
	}
	var x map[string][]byte
	if err := json.Unmarshal([]byte(plain), &x); err != nil {
		return nil
	}
	return x
}

func decodeBase(b []byte, base *record.Base) error {
	if err := proto.Unmarshal(b, base); err != nil {
		return objcache.Errorf(objcache.Invalid, "base: %w", err)
	}
	return nil
}
