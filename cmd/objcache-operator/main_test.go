package main

import (
	"bytes"
	"errors"
	"testing"
)

func TestRoot_ReportsItsVersionAndRefusesToRun(t *testing.T) {
	version = "v1.2.3-test"
	t.Cleanup(func() { version = "" })

	var out bytes.Buffer
	root := newRoot()
	root.SetOut(&out)
	root.SetArgs([]string{"--version"})
	if err := root.Execute(); err != nil || out.String() != "objcache-operator v1.2.3-test\n" {
		t.Errorf("--version printed %q, error %v", out.String(), err)
	}

	root = newRoot()
	root.SetArgs([]string{})
	if err := root.Execute(); !errors.Is(err, errEmpty) {
		t.Errorf("running gave %v, want %v", err, errEmpty)
	}
}
