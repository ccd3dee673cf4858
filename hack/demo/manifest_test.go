package main

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestManifest_NoticesOneByte(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"a": "one", "d/b": "two", "d/c": ""} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := hashTree(t.Context(), dir, &step{})
	if err != nil || len(want) != 3 {
		t.Fatalf("%d files, %v", len(want), err)
	}
	if err := want.same(maps.Clone(want)); err != nil {
		t.Errorf("the same tree: %v", err)
	}
	for name, change := range map[string]func(manifest){
		"missing":     func(m manifest) { delete(m, "d/c") },
		"other bytes": func(m manifest) { v := m["a"]; v.hash[31] ^= 1; m["a"] = v },
		"instead of":  func(m manifest) { v := m["a"]; v.size++; m["a"] = v },
		"should not":  func(m manifest) { m["x"] = m["a"] },
	} {
		got := maps.Clone(want)
		change(got)
		if err := want.same(got); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFollow_AddsUpStatistics(t *testing.T) {
	s := &step{}
	log := `{"msg":"a","stats":{"bytes":10,"transfers":1}}
{"msg":"cannot copy"}
{"msg":"b","stats":{"bytes":30,"transfers":4}}
`
	if last := follow(strings.NewReader(log), s); last != "cannot copy" || s.files.Load() != 4 || s.bytes.Load() != 30 {
		t.Errorf("%q, %d files, %d bytes", last, s.files.Load(), s.bytes.Load())
	}
}
