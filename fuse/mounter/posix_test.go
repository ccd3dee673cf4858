//go:build integration

package mounter_test

import (
	"sort"
	"testing"

	"github.com/hanwen/go-fuse/v2/posixtest"

	"github.com/objcache/objcache/fuse"
	"github.com/objcache/objcache/fuse/fusetest"
	"github.com/objcache/objcache/fuse/mounter"
)

var modes = map[string]func(*mounter.Config){
	"passthrough":    func(*mounter.Config) {},
	"no passthrough": func(c *mounter.Config) { c.Passthrough = "off" },
	"strict":         func(c *mounter.Config) { c.Consistency = fuse.Strict },
}

func TestMount_ConformsToPosix(t *testing.T) {
	for mode, change := range modes {
		t.Run(mode, func(t *testing.T) {
			names := make([]string, 0, len(posixtest.All))
			for n := range posixtest.All {
				switch n {
				case "FcntlFlockLocksFile":
					// It wants two descriptors of one process to conflict, which POSIX locks do on no native file system.
				case "OpenSymlinkRace":
					// A file that is replaced between the kernel's LOOKUP and OPEN, and again at the one retry it makes, is ESTALE: see docs of Open.
				default:
					names = append(names, n)
				}
			}
			sort.Strings(names)
			for _, n := range names {
				t.Run(n, func(t *testing.T) {
					m := mountOn(t, fusetest.New(), change)
					posixtest.All[n](t, m.dir)
				})
			}
		})
	}
}
