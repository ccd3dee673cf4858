package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

// enough fails when dir's disk has less free than is needed.
func enough(dir string, need int64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("free space of %s: %w", dir, err)
	}
	if free := int64(st.Bavail) * st.Bsize; free < need {
		return fmt.Errorf("%s has %d MiB free and %d are needed (choose -dir or a larger -scale)", dir, free>>20, need>>20)
	}
	return nil
}

// dropCaches empties the page cache, what is not written yet written first.
func dropCaches(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = unix.Syncfs(int(f.Fd()))
	f.Close()
	if err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0)
}

// needS3fs installs s3fs when it is missing and this is root.
func needS3fs(ctx context.Context) error {
	if _, err := exec.LookPath("s3fs"); err == nil {
		return nil
	}
	if os.Geteuid() != 0 {
		return errors.New("s3fs is missing: apt-get install s3fs")
	}
	say("installing s3fs")
	cmd := exec.CommandContext(ctx, "apt-get", "install", "-y", "--no-install-recommends", "s3fs")
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("s3fs is missing and apt-get cannot install it: %w: %s", err, out[max(0, len(out)-300):])
	}
	return nil
}
