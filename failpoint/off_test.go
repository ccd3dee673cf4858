//go:build !failpoints

package failpoint

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A program without the tag: its machine code, but for the names of symbols, is that of the same program without the calls.
func TestOff_HitCompilesToNothing(t *testing.T) {
	dir := t.TempDir()
	const program = `package main

import "github.com/objcache/objcache/failpoint"

//go:noinline
func step(a int) int {
	failpoint.Hit(failpoint.LogSynced)
	if err := failpoint.Fail(failpoint.S3PutBefore); err != nil {
		return 0
	}
	return a + 7
}

func main() { println(step(1)) }
`
	// The compiler sees it as a package of this module, where nobody else does.
	here, err := filepath.Abs("compiled")
	if err != nil {
		t.Fatal(err)
	}
	source, overlay, bin := filepath.Join(dir, "main.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "program")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(here, "main.go"): source}})
	if err := errors.Join(err, os.WriteFile(source, []byte(program), 0o600), os.WriteFile(overlay, replace, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"build", "-overlay", overlay, "-o", bin, "./compiled"}, {"tool", "objdump", "-s", "main.step", bin}} {
		out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("go %v: %v\n%s", args, err, out)
		}
		if args[0] == "tool" && (strings.Contains(string(out), "CALL") || strings.Contains(string(out), "JMP") || !strings.Contains(string(out), "RET")) {
			t.Errorf("something is left of the points:\n%s", out)
		}
	}
}

func BenchmarkHit(b *testing.B) {
	for b.Loop() {
		Hit(LogSynced)
	}
}
