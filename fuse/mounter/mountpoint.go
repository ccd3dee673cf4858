package mounter

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/objcache/objcache"
)

// checkMountpoint says in one line why nothing can be mounted there.
func checkMountpoint(path string) error {
	mounted, err := Mounted(path)
	if err != nil {
		return err
	}
	if mounted {
		return objcache.Errorf(objcache.Exist, "mountpoint %s is already a mountpoint", path)
	}
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return objcache.Errorf(objcache.NotExist, "mountpoint %s", path)
	case err != nil:
		return objcache.Errorf(objcache.IO, "mountpoint %s: %w", path, err)
	case !st.IsDir():
		return objcache.Errorf(objcache.NotDir, "mountpoint %s", path)
	}
	d, err := os.Open(path)
	if err != nil {
		return objcache.Errorf(objcache.IO, "mountpoint %s: %w", path, err)
	}
	defer d.Close()
	if _, err := d.Readdirnames(1); err != io.EOF {
		return objcache.Errorf(objcache.NotEmpty, "mountpoint %s", path)
	}
	if _, err := os.Stat("/dev/fuse"); err != nil {
		return objcache.Errorf(objcache.NotExist, "/dev/fuse (load the kernel module fuse, or give the container the device)")
	}
	return nil
}

// Mounted reports whether something is mounted at path. It reads the mount table and never touches path, which may hang.
func Mounted(path string) (bool, error) {
	m, err := lastMount(path)
	return m != nil, err
}

type mountLine struct{ minor uint32 }

// lastMount returns the topmost mount at path, or nil.
func lastMount(path string) (*mountLine, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, objcache.Errorf(objcache.IO, "mount table: %w", err)
	}
	defer f.Close()
	var found *mountLine
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		// id parent major:minor root mountpoint ...
		w := strings.Fields(lines.Text())
		if len(w) < 5 || unescape(w[4]) != path {
			continue
		}
		_, minor, _ := strings.Cut(w[2], ":")
		n, err := strconv.ParseUint(minor, 10, 32)
		if err != nil {
			return nil, objcache.Errorf(objcache.Invalid, "mount table: device %q", w[2])
		}
		found = &mountLine{uint32(n)}
	}
	return found, lines.Err()
}

// unescape undoes the octal escapes of the mount table.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
