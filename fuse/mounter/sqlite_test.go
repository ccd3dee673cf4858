//go:build integration

package mounter_test

import (
	"testing"

	"github.com/objcache/objcache/fuse/fusetest"
	"github.com/objcache/objcache/test/programs"
)

func TestLocks_SqliteOnTwoMountsLosesNoUpdate(t *testing.T) {
	c := fusetest.New()
	a, b := mountOn(t, c), mountOn(t, c)
	programs.RaiseCounter(t, 150, a.path("db"), b.path("db"))
}
