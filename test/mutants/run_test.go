// Package mutants breaks the code on purpose: run.sh applies the mutations of table.txt and promises to fail when the
// tests named there do not notice. This test checks run.sh itself; it does not run the table, make mutants does.
package mutants

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestRun_TellsCaughtFromEverythingElse(t *testing.T) {
	const (
		kill   = `s/return to\.Floor < from\.Floor/return true/`
		narrow = "./test/arch -run TestCheck"
	)
	tests := []struct {
		name, file, sed, test string
		want                  string // in the line of the verdict
	}{
		{"a mutation that a test notices", "test/arch/check.go", kill, narrow, "mutant m caught by TestCheck_"},
		{"a mutation that no test notices", "test/arch/check.go", kill, "./test/arch -run TestCheck_ReportsACircle", "SURVIVED"},
		{"a mutation that does not compile", "test/arch/check.go", `s/^package/packet/`, narrow, "did not get as far as a failing test"},
		{"a mutation of nothing", "test/arch/check.go", `s/no such text/x/`, narrow, "changes nothing"},
		{"a file that is not there", "test/arch/none.go", kill, narrow, "sed fails"},
		{"a test that is not there", "test/arch/check.go", kill, "./test/arch -run TestNone", "match no test"},
		{"a block without a test", "test/arch/check.go", kill, "", "lacks"},
	}
	// The go command's cache of results follows files that a test opens, not those its children open.
	for _, input := range []string{"run.sh", "../arch/check.go"} {
		if _, err := os.ReadFile(input); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			table := filepath.Join(t.TempDir(), "table.txt")
			block := "mutant: m\nfile: " + tt.file + "\nsed: " + tt.sed + "\n"
			if tt.test != "" {
				block += "test: " + tt.test + "\n"
			}
			if err := os.WriteFile(table, []byte(block), 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := exec.CommandContext(t.Context(), "./run.sh", table).CombinedOutput()
			if !strings.Contains(string(out), tt.want) {
				t.Errorf("printed\n%s\nwithout %q", out, tt.want)
			}
			if caught := strings.HasPrefix(tt.want, "mutant m caught"); caught != (err == nil) {
				t.Errorf("ended with %v", err)
			}
		})
	}
}

// TestTable_EveryMutationStillChangesItsFile finds entries that the code has left behind, without the time that running them takes.
func TestTable_EveryMutationStillChangesItsFile(t *testing.T) {
	b, err := os.ReadFile("table.txt")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for block := range strings.SplitSeq(string(b), "\n\n") {
		entry := map[string]string{}
		for line := range strings.Lines(block) {
			if k, v, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ": "); ok && !strings.HasPrefix(line, "#") {
				entry[k] = v
			}
		}
		if entry["mutant"] == "" {
			continue
		}
		n++
		path := filepath.Join("../..", entry["file"])
		before, err := os.ReadFile(path)
		if err != nil {
			t.Errorf("%s: %v", entry["mutant"], err)
			continue
		}
		after, err := exec.CommandContext(t.Context(), "sed", "-E", entry["sed"], path).Output()
		if err != nil || string(after) == string(before) {
			t.Errorf("%s changes nothing in %s: %v", entry["mutant"], entry["file"], err)
		}
	}
	if n < 40 {
		t.Errorf("%d mutations", n)
	}
}

func TestRun_FailsOnALineItDoesNotUnderstand(t *testing.T) {
	table := filepath.Join(t.TempDir(), "table.txt")
	if err := os.WriteFile(table, []byte("mutation: typo\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "./run.sh", table).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "not understood") {
		t.Errorf("printed\n%s\nand ended with %v", out, err)
	}
}
