package replica

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/objcache/objcache"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// writeAtomic replaces the file at path by v as JSON, behind a line with the CRC-32C of that JSON. Durable on return:
// after a crash the file holds the old or the new value, whole.
func writeAtomic(fsys vfs.FS, path string, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	tmp := path + ".tmp"
	f, err := fsys.Create(tmp, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(fmt.Appendf(nil, "%08x\n%s", crc32.Checksum(body, castagnoli), body))
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := fsys.Rename(tmp, path); err != nil {
		return err
	}
	return syncDir(fsys, fsys.PathDir(path))
}

// readAtomic reads what writeAtomic wrote. found is false when there is no such file; a file that does not match its checksum is Corrupt.
func readAtomic(fsys vfs.FS, path string, v any) (found bool, err error) {
	raw, err := readFile(fsys, path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	const head = 9 // eight hexadecimal digits and the line's end
	if len(raw) < head {
		return false, objcache.Errorf(objcache.Corrupt, "%s: %d bytes", path, len(raw))
	}
	if got := fmt.Sprintf("%08x\n", crc32.Checksum(raw[head:], castagnoli)); got != string(raw[:head]) {
		return false, objcache.Errorf(objcache.Corrupt, "%s: checksum %q, content has %q", path, raw[:head], got)
	}
	if err := json.Unmarshal(raw[head:], v); err != nil {
		return false, objcache.Errorf(objcache.Corrupt, "%s: %w", path, err)
	}
	return true, nil
}

func readFile(fsys vfs.FS, path string) ([]byte, error) {
	f, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(f)
	return raw, errors.Join(err, f.Close())
}

func syncDir(fsys vfs.FS, dir string) error {
	d, err := fsys.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
