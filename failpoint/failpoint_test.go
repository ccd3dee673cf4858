package failpoint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestTable_EveryPointHasANameAndAText(t *testing.T) {
	shape := regexp.MustCompile(`^[a-z0-9]+([.-][a-z0-9]+)+$`)
	seen := map[string]bool{}
	for p, i := range All() {
		if !shape.MatchString(i.Name) || i.Text == "" || i.In == "" || seen[i.Name] {
			t.Errorf("point %d: %+v", p, i)
		}
		seen[i.Name] = true
	}
	if len(seen) < 60 {
		t.Errorf("only %d points", len(seen))
	}
}

// constants are the names that points.go declares.
func constants(t *testing.T) map[string]bool {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "points.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, d := range f.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.CONST {
			for _, s := range g.Specs {
				names[s.(*ast.ValueSpec).Names[0].Name] = true
			}
		}
	}
	delete(names, "count")
	return names
}

func TestTable_EveryPointIsUsedAndEveryUseIsInTheTable(t *testing.T) {
	known := constants(t)
	if len(known) != len(All()) {
		t.Errorf("%d constants, %d rows", len(known), len(All()))
	}
	unused := maps.Clone(known)
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := s.X.(*ast.Ident); ok && x.Name == "failpoint" {
				delete(unused, s.Sel.Name)
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(unused) > 0 {
		t.Errorf("nobody passes %v", slices.Sorted(maps.Keys(unused)))
	}
}
