package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestGuarantees_NameTestsThatExist keeps docs/guarantees.md true: every test that it names is there, and every row that is kept names one.
func TestGuarantees_NameTestsThatExist(t *testing.T) {
	readSources(t)
	text, err := os.ReadFile("../../docs/guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	have := tests(t)
	named := regexp.MustCompile("`(Test[A-Za-z0-9]+_[A-Za-z0-9_]*\\*?)`")
	n := 0
	for _, m := range named.FindAllStringSubmatch(string(text), -1) {
		n++
		if !anyTest(have, m[1]) {
			t.Errorf("there is no test %s", m[1])
		}
	}
	if n < 50 {
		t.Errorf("only %d tests are named", n)
	}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) >= 5 && strings.HasPrefix(strings.TrimSpace(cells[3]), "kept") && !strings.Contains(line, "`Test") {
			t.Errorf("a promise that is kept names no test: %s", line)
		}
	}
}

// tests are the names of all test functions of the module.
func tests(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	err := filepath.WalkDir("../..", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") {
				all[f.Name.Name] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func anyTest(have map[string]bool, name string) bool {
	prefix, any := strings.CutSuffix(name, "*")
	if !any {
		return have[name]
	}
	for n := range have {
		if strings.HasPrefix(n, prefix) {
			return true
		}
	}
	return false
}
