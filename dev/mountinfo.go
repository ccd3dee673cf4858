package dev

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// mountLine is one file system in the tree. Reading the mount table never touches a mountpoint, which may hang.
type mountLine struct{ path, kind string }

func mountTable() ([]mountLine, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("mount table: %w", err)
	}
	defer f.Close()
	var table []mountLine
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		// id parent major:minor root mountpoint options optional... - type source options
		before, after, ok := strings.Cut(lines.Text(), " - ")
		w, rest := strings.Fields(before), strings.Fields(after)
		if ok && len(w) > 4 && len(rest) > 0 {
			table = append(table, mountLine{unescape(w[4]), rest[0]})
		}
	}
	return table, lines.Err()
}

// unescape undoes the octal escapes of the mount table.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// mountKind is the type of the topmost file system mounted at path; empty when there is none.
func mountKind(path string) (string, error) {
	table, err := mountTable()
	kind := ""
	for _, m := range table {
		if m.path == path {
			kind = m.kind
		}
	}
	return kind, err
}

// mountedHere reports whether the topmost mount at path is one of ours.
func mountedHere(path string) (bool, error) {
	kind, err := mountKind(path)
	return kind == "fuse.objcache", err
}

// mountsBelow lists the mountpoints in dir and below.
func mountsBelow(dir string) ([]string, error) {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	table, err := mountTable()
	var below []string
	for _, m := range table {
		if m.path == real || strings.HasPrefix(m.path, real+"/") {
			below = append(below, m.path)
		}
	}
	return below, err
}
