package transfer

import (
	"encoding/base64"
	"encoding/json"
	"strconv"

	"google.golang.org/protobuf/proto"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/record"
)

// metadata is what goes into an object's user metadata: attributes in the dialect of s3fs (decimal st_mode, ids, seconds with a fraction), and our own.
func metadata(in *record.Inode, it *record.Intent) map[string]string {
	m := map[string]string{
		"mode": strconv.FormatUint(uint64(in.GetMode()), 10), "uid": strconv.FormatUint(uint64(in.GetUid()), 10),
		"gid": strconv.FormatUint(uint64(in.GetGid()), 10), "mtime": seconds(in.GetMtime()),
		"objcache-ino": strconv.FormatUint(in.GetIno(), 10),
	}
	if it != nil {
		m[metaTx] = txString(it.GetTx())
	}
	if len(in.GetXattrs()) > 0 {
		if b, err := json.Marshal(in.GetXattrs()); err == nil {
			m["objcache-xattrs"] = base64.StdEncoding.EncodeToString(b)
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

func decodeBase(b []byte, base *record.Base) error {
	if err := proto.Unmarshal(b, base); err != nil {
		return objcache.Errorf(objcache.Invalid, "base: %w", err)
	}
	return nil
}
