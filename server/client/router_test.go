package client

import (
	"errors"
	"testing"

	"github.com/objcache/objcache"
)

func TestRouter_MakesNoConnectionAfterItsClose(t *testing.T) {
	r := &Router{}
	if _, err := r.Conn("before"); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if c, err := r.Conn("after"); !errors.Is(err, objcache.Interrupted) {
		t.Errorf("a connection %v that nobody closes: %v", c, err)
	}
}
