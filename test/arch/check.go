package arch

import (
	"fmt"
	"slices"
	"strings"
)

// Package is one node of the import graph, with full import paths.
type Package struct {
	ImportPath string
	Imports    []string
	// TestImports are those of its _test.go files, in the package and beside it.
	TestImports []string
}

// Check returns one sentence for each violation of the table, sorted; nil if there is none.
func Check(table []Room, graph []Package) []string {
	c := checker{table: table, graph: graph}
	c.checkTable()
	for _, p := range graph {
		c.checkPackage(p)
	}
	c.checkCircles()
	slices.Sort(c.found)
	return slices.Compact(c.found)
}

type checker struct {
	table []Room
	graph []Package
	found []string
}

func (c *checker) report(format string, args ...any) {
	c.found = append(c.found, fmt.Sprintf(format, args...))
}

// checkTable refuses rows that would hollow out the rule: an exception may lead sideways, never up.
func (c *checker) checkTable() {
	seen := map[string]bool{}
	for _, r := range c.table {
		if seen[r.Path] {
			c.report("%s: two rows in the table", r.Path)
		}
		seen[r.Path] = true
		for _, m := range r.May {
			if t, ok := c.room(m); !ok {
				c.report("%s: may import %s, which is not in the table", r.Path, m)
			} else if r.Floor > 0 && t.Floor != r.Floor {
				c.report("%s: may import %s, which is not on its floor", r.Path, m)
			}
		}
	}
}

func (c *checker) checkPackage(p Package) {
	path, _ := ours(p.ImportPath)
	from, ok := c.room(path)
	if !ok {
		c.report("%s: not in the table of test/arch: give it a floor", path)
		return
	}
	if from.Support {
		return
	}
	for _, i := range p.Imports {
		c.checkImport(from, path, i, false)
	}
	for _, i := range p.TestImports {
		c.checkImport(from, path, i, true)
	}
}

func (c *checker) checkImport(from Room, path, imported string, test bool) {
	target, inside := ours(imported)
	if !inside {
		c.checkLibrary(path, imported)
		if !test && slices.Contains(pure, path) && slices.ContainsFunc(unpure, func(u string) bool { return below(imported, u) }) {
			c.report("%s imports %s: its state must follow from the log alone", path, imported)
		}
		return
	}
	to, ok := c.room(target)
	if !ok || target == path {
		return // an unknown package is reported at its own turn
	}
	if !allowed(from, to, test) {
		c.report("%s imports %s: %s", path, target, why(from, to))
	}
}

func (c *checker) checkLibrary(path, imported string) {
	for _, l := range Libraries {
		if below(imported, l.Path) && !slices.Contains(l.Only, path) {
			c.report("%s imports %s: only %s may", path, imported, strings.Join(l.Only, ", "))
		}
	}
}

// allowed reports whether a file of from, a test if test is set, may import to.
func allowed(from, to Room, test bool) bool {
	switch {
	case to.Support:
		return test
	case from.Path == vocabulary:
		return false
	case to.Path == vocabulary, slices.Contains(from.May, to.Path):
		return true
	case from.Floor == Top:
		return to.Floor < Top
	case from.Floor == 0 || to.Floor == 0:
		return false
	case test:
		return to.Floor <= from.Floor
	default:
		return to.Floor < from.Floor
	}
}

// why says which rule a forbidden import breaks.
func why(from, to Room) string {
	switch {
	case to.Support:
		return "a support room, for tests only"
	case from.Path == vocabulary:
		return "the vocabulary imports nothing of ours"
	case from.Floor == 0 || to.Floor == 0:
		return "only cmd joins the tower with what stands beside it"
	case to.Floor > from.Floor:
		return fmt.Sprintf("upward, from floor %d to %d", from.Floor, to.Floor)
	default:
		return fmt.Sprintf("sideways on floor %d", from.Floor)
	}
}

// checkCircles looks for a package that reaches itself through imports. The compiler refuses it as well; here it is
// named in full, and the rule holds for a table whose exceptions lead sideways in both directions.
func (c *checker) checkCircles() {
	edges := map[string][]string{}
	for _, p := range c.graph {
		path, _ := ours(p.ImportPath)
		for _, i := range p.Imports {
			if t, ok := ours(i); ok {
				edges[path] = append(edges[path], t)
			}
		}
	}
	const (
		open = iota + 1
		done
	)
	state := map[string]int{}
	var visit func(trail []string, path string)
	visit = func(trail []string, path string) {
		trail = append(trail, path)
		switch state[path] {
		case done:
			return
		case open:
			start := slices.Index(trail, path)
			c.report("circle: %s", strings.Join(trail[start:], " -> "))
			return
		}
		state[path] = open
		for _, next := range edges[path] {
			visit(trail, next)
		}
		state[path] = done
	}
	for _, p := range c.graph {
		path, _ := ours(p.ImportPath)
		visit(nil, path)
	}
}

// room finds the row of a package: its own, else the pattern above it.
func (c *checker) room(path string) (Room, bool) {
	for _, r := range c.table {
		if r.Path == path {
			return r, true
		}
	}
	for _, r := range c.table {
		if prefix, ok := strings.CutSuffix(r.Path, "/..."); ok && below(path, prefix) {
			return r, true
		}
	}
	return Room{}, false
}

// ours returns the path relative to the module, "." for its root, and whether the package is in the module.
func ours(importPath string) (string, bool) {
	if importPath == Module {
		return vocabulary, true
	}
	return strings.CutPrefix(importPath, Module+"/")
}

// below reports whether path is root or in a directory below it.
func below(path, root string) bool {
	return path == root || strings.HasPrefix(path, root+"/")
}
