package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/fsck"
)

func TestFsck_WhatCannotBeCheckedIs2(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	for want, args := range map[string][]string{
		"--servers":               {"fsck"},
		"give the addresses":      {"fsck", "--servers", "127.0.0.1:1", "--state", none},
		"no state directory":      {"fsck", "--state", none},
		"start the servers":       {"fsck", "--state", none, "--repair"},
		"goes with --repair":      {"fsck", "--state", none, "--revert-lost"},
		"table or json":           {"fsck", "--state", none, "-o", "xml"},
		"server 127.0.0.1:1":      {"fsck", "--servers", "127.0.0.1:1"},
		"objcache dev up":         {"dev", "fsck", "--state", none},
		"--ca-file":               {"fsck", "--servers", "127.0.0.1:1", "--cert-file", none},
		"goes with --repair or -": {"fsck", "--servers", "127.0.0.1:1", "--revert-lost"},
	} {
		_, err := execute(t, args...)
		if err == nil || !strings.Contains(oneLine(err), want) || exitCode(err) != exitNoCheck {
			t.Errorf("%v: %v, exit %d, want a word on %q and exit %d", args, err, exitCode(err), want, exitNoCheck)
		}
	}
}

// dangling is a name of an inode that is not there.
var dangling = fsck.Finding{
	Code: "entry-without-inode", Severity: fsck.Error, Group: 1, Path: "/data/a", Text: `"a" is inode 7, which has no row`, Repair: "the name goes",
}

// printed is what a report shows and the code the program ends with.
func printed(t *testing.T, f fsckFlags, o fsck.Outcome) (string, int) {
	t.Helper()
	var out bytes.Buffer
	cmd := &cobra.Command{}
	cmd.SetOut(&out)
	err := f.report(cmd, o)
	return out.String(), exitCode(err)
}

func TestFsck_OneLinePerFinding(t *testing.T) {
	table := output{format: "table"}
	note := fsck.Finding{Code: "file-nameless", Severity: fsck.Note, Group: 2, Text: "no row names x, 9 bytes", Repair: "nothing"}
	inode := fsck.Finding{Code: "place-without-extent", Severity: fsck.Warning, Ino: 9, Text: "kept for nothing", Repair: "given back"}
	gone := fsck.Repair{Code: "entry-without-inode", Path: "/data/a", Text: "the name went"}
	for _, c := range []struct {
		name string
		f    fsckFlags
		o    fsck.Outcome
		want []string
		code int
	}{
		{"nothing", fsckFlags{out: table}, fsck.Outcome{}, []string{"clean"}, 0},
		{"a note", fsckFlags{out: table}, fsck.Outcome{Found: []fsck.Finding{note}, Left: []fsck.Finding{note}},
			[]string{"CODE WHERE WHAT REPAIR", "file-nameless group 2 no row names x, 9 bytes nothing", "clean"}, 0},
		{"findings", fsckFlags{out: table}, fsck.Outcome{Found: []fsck.Finding{dangling, inode}, Left: []fsck.Finding{dangling, inode}, Unsure: 2}, []string{
			"CODE WHERE WHAT REPAIR", `entry-without-inode /data/a "a" is inode 7, which has no row the name goes`,
			"place-without-extent inode 9 kept for nothing given back",
			"2 suspicions kept changing while they were looked at: check again when there is less going on",
		}, 1},
		{"a dry run", fsckFlags{out: table, repair: true, dryRun: true},
			fsck.Outcome{Found: []fsck.Finding{dangling}, Left: []fsck.Finding{dangling}, Repairs: []fsck.Repair{gone}}, []string{
				"CODE WHERE WHAT REPAIR", `entry-without-inode /data/a "a" is inode 7, which has no row the name goes`,
				"would repair /data/a: the name went (entry-without-inode)",
			}, 1},
		{"repaired", fsckFlags{out: table, repair: true}, fsck.Outcome{Found: []fsck.Finding{dangling}, Repairs: []fsck.Repair{gone}}, []string{
			"CODE WHERE WHAT REPAIR", `entry-without-inode /data/a "a" is inode 7, which has no row the name goes`,
			"repaired /data/a: the name went (entry-without-inode)", "clean",
		}, 0},
		{"partly repaired", fsckFlags{out: table, repair: true},
			fsck.Outcome{Found: []fsck.Finding{dangling}, Left: []fsck.Finding{inode}, Repairs: []fsck.Repair{gone}}, []string{
				"CODE WHERE WHAT REPAIR", `entry-without-inode /data/a "a" is inode 7, which has no row the name goes`,
				"repaired /data/a: the name went (entry-without-inode)", "left inode 9: kept for nothing (place-without-extent)",
			}, 1},
	} {
		out, code := printed(t, c.f, c.o)
		var lines []string
		for l := range strings.Lines(out) {
			lines = append(lines, strings.Join(strings.Fields(l), " "))
		}
		if strings.Join(lines, "\n") != strings.Join(c.want, "\n") || code != c.code {
			t.Errorf("%s: exit %d, want %d, printed\n%s", c.name, code, c.code, out)
		}
	}
}

func TestFsck_JSONForPrograms(t *testing.T) {
	out, code := printed(t, fsckFlags{out: output{format: "json"}}, fsck.Outcome{Found: []fsck.Finding{dangling}, Left: []fsck.Finding{dangling}})
	var r struct {
		Findings []struct{ Code, Severity, Path, Text, Repair string }
		Repairs  []any
		Left     []any
		Clean    *bool
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Findings) != 1 || r.Findings[0].Code != "entry-without-inode" || r.Findings[0].Path != "/data/a" || r.Findings[0].Severity != "error" ||
		r.Repairs == nil || len(r.Left) != 1 || r.Clean == nil || *r.Clean || code != 1 {
		t.Errorf("exit %d, %s", code, out)
	}
}

func TestExitCode_IsOneUnlessTheCommandHasItsOwn(t *testing.T) {
	err := objcache.Errorf(objcache.Invalid, "x")
	for _, c := range []struct {
		err  error
		code int
	}{{nil, 0}, {err, 1}, {exitError{2, err}, 2}, {errors.Join(exitError{code: 1}, nil), 1}} {
		if got := exitCode(c.err); got != c.code {
			t.Errorf("%v: %d", c.err, got)
		}
	}
}
