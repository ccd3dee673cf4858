package arch

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os/exec"
	"path/filepath"
	"testing"
)

// tags are the build tags of the module's tests, so that the imports behind them are seen too.
const tags = "integration,tests3"

func TestModule_ImportsPointDown(t *testing.T) {
	readSources(t)
	graph := load(t)
	if len(graph) == 0 {
		t.Fatal("go list found no packages")
	}
	for _, violation := range Check(Table, graph) {
		t.Error(violation)
	}
}

// readSources lists the directories of the module, so that the go command does not serve this test's result from its
// cache after a change anywhere: it sees what the test itself opens, but not what go list does.
func readSources(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() && (d.Name() == ".git" || d.Name() == "bin") {
			return filepath.SkipDir
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// load returns the packages of the module as the go command sees them.
func load(t *testing.T) []Package {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-tags", tags,
		"-json=ImportPath,Imports,TestImports,XTestImports", Module+"/...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.Bytes())
	}
	var graph []Package
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			Package
			XTestImports []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return graph
		} else if err != nil {
			t.Fatalf("go list: %v", err)
		}
		p.TestImports = append(p.TestImports, p.XTestImports...)
		graph = append(graph, p.Package)
	}
}
