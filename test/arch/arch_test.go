package arch

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"testing"
)

// tags are the build tags of the module's tests, so that the imports behind them are seen too.
const tags = "integration,tests3"

func TestModule_ImportsPointDown(t *testing.T) {
	graph := load(t)
	if len(graph) == 0 {
		t.Fatal("go list found no packages")
	}
	for _, violation := range Check(Table, graph) {
		t.Error(violation)
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
