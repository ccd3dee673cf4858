package main

import (
	"bytes"
	"context"
	"runtime"
	"strings"
	"testing"
)

// execute runs the program in-process and returns what it printed.
func execute(t *testing.T, args ...string) (string, error) {
	t.Helper()
	root := newRoot()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(args)
	err := root.ExecuteContext(context.Background())
	return out.String(), err
}

func TestVersion_NamesTheBuild(t *testing.T) {
	version = "v1.2.3-test"
	t.Cleanup(func() { version = "" })

	for _, args := range [][]string{{"version"}, {"--version"}} {
		out, err := execute(t, args...)
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		if !strings.HasPrefix(out, "objcache v1.2.3-test") {
			t.Errorf("%v printed %q", args, out)
		}
	}
	if out, _ := execute(t, "version"); !strings.Contains(out, runtime.Version()) {
		t.Errorf("version printed %q without the version of Go", out)
	}
}

func TestVersion_IsNeverEmpty(t *testing.T) {
	if buildVersion() == "" {
		t.Error("empty version")
	}
}

func TestRoot_UnknownCommandIsAnErrorWithoutUsage(t *testing.T) {
	out, err := execute(t, "nonsense")
	if err == nil || out != "" {
		t.Errorf("printed %q, error %v", out, err)
	}
}

func TestRoot_CompletesShells(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		out, err := execute(t, "completion", shell)
		if err != nil || !strings.Contains(out, "objcache") {
			t.Errorf("%s: %d bytes, error %v", shell, len(out), err)
		}
	}
}
