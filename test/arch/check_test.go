package arch

import (
	"slices"
	"strings"
	"testing"
)

// pkg is a package of the fake graph; names without a dot in their first element are ours.
func pkg(path string, imports ...string) Package {
	return Package{ImportPath: full(path), Imports: fullAll(imports)}
}

// testPkg is a package whose imports come from its tests.
func testPkg(path string, imports ...string) Package {
	return Package{ImportPath: full(path), TestImports: fullAll(imports)}
}

func full(path string) string {
	first, _, _ := strings.Cut(path, "/")
	switch {
	case path == vocabulary:
		return Module
	case strings.Contains(first, ".") || path == "net/http" || path == "math/rand/v2":
		return path
	default:
		return Module + "/" + path
	}
}

func fullAll(paths []string) []string {
	var out []string
	for _, p := range paths {
		out = append(out, full(p))
	}
	return out
}

func TestCheck_ReportsWhatTheTableForbids(t *testing.T) {
	tests := []struct {
		name  string
		graph []Package
		want  string // "" if the graph is allowed
	}{
		{"down", []Package{pkg("server/group", "server/meta", "server/chunk", "server/txn", "server/replica", ".")}, ""},
		{"up", []Package{pkg("server/chunk", "server/group")}, "server/chunk imports server/group: upward, from floor 3 to 4"},
		{"sideways", []Package{pkg("server/meta", "server/chunk")}, "server/meta imports server/chunk: sideways on floor 3"},
		{"sideways as listed", []Package{pkg("server/external/s3", "server/external")}, ""},
		{"sideways in the other direction", []Package{pkg("server/external", "server/external/s3")}, "server/external imports server/external/s3: sideways on floor 2"},
		{"unknown package", []Package{pkg("server/util")}, "server/util: not in the table of test/arch: give it a floor"},
		{"unknown package below a known one", []Package{pkg("server/chunk/types")}, "server/chunk/types: not in the table of test/arch: give it a floor"},
		{"vocabulary imports ours", []Package{pkg(".", "api/rpc")}, ". imports api/rpc: the vocabulary imports nothing of ours"},
		{"tests of the vocabulary import ours", []Package{testPkg(".", "server/ring")}, ". imports server/ring: the vocabulary imports nothing of ours"},
		{"raft in its room", []Package{pkg("server/replica", "github.com/hashicorp/raft", "github.com/hashicorp/raft-wal")}, ""},
		{"raft elsewhere", []Package{pkg("server/group", "github.com/hashicorp/raft")}, "server/group imports github.com/hashicorp/raft: only server/replica may"},
		{"raft in a test elsewhere", []Package{testPkg("server/group", "github.com/hashicorp/raft")}, "server/group imports github.com/hashicorp/raft: only server/replica may"},
		{"aws in its room", []Package{pkg("server/external/s3", "github.com/aws/aws-sdk-go-v2/service/s3")}, ""},
		{"aws elsewhere", []Package{pkg("server/transfer", "github.com/aws/aws-sdk-go-v2/service/s3")}, "server/transfer imports github.com/aws/aws-sdk-go-v2/service/s3: only server/external/s3 may"},
		{"cmd joins", []Package{pkg("cmd/objcache", "server", "fuse", "fuse/mounter", "dev", ".")}, ""},
		{"fuse joins", []Package{pkg("fuse", "server/client")}, "fuse imports server/client: only cmd joins the tower with what stands beside it"},
		{"server joins", []Package{pkg("server", "fuse")}, "server imports fuse: only cmd joins the tower with what stands beside it"},
		{"a command imports another", []Package{pkg("cmd/objcache", "cmd/objcache-csi")}, "cmd/objcache imports cmd/objcache-csi: sideways on floor 8"},
		{"beside, as listed", []Package{pkg("fuse/mounter", "fuse", "fuse/cache", "."), pkg("csi", "api/rpc"), pkg("controllers", "api/v1alpha1")}, ""},
		{"beside, not listed", []Package{pkg("fuse/cache", "fuse")}, "fuse/cache imports fuse: only cmd joins the tower with what stands beside it"},
		{"support in production", []Package{pkg("server", "server/servertest")}, "server imports server/servertest: a support room, for tests only"},
		{"support in a command", []Package{pkg("cmd/objcache", "test/faultproxy")}, "cmd/objcache imports test/faultproxy: a support room, for tests only"},
		{"support in a test", []Package{testPkg("server/transfer", "server/servertest", "test/s3server")}, ""},
		{"support imports anything", []Package{pkg("test/e2e/mount", "server", "fuse", "github.com/aws/aws-sdk-go-v2/service/s3")}, ""},
		{"a test sideways", []Package{testPkg("server/transfer", "server/namespace")}, ""},
		{"a test upward", []Package{testPkg("server/meta", "server/group")}, "server/meta imports server/group: upward, from floor 3 to 4"},
		{"an external test imports its own package", []Package{testPkg("server/chunk", "server/chunk")}, ""},
		{"network in a pure room", []Package{pkg("server/meta", "net/http")}, "server/meta imports net/http: its state must follow from the log alone"},
		{"randomness in a test of a pure room", []Package{testPkg("server/ring", "math/rand/v2")}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var want []string
			if tt.want != "" {
				want = []string{tt.want}
			}
			if got := Check(Table, tt.graph); !slices.Equal(got, want) {
				t.Errorf("Check found\n\t%q\nwant\n\t%q", got, want)
			}
		})
	}
}

func TestCheck_ReportsACircleByItsMembers(t *testing.T) {
	table := []Room{
		{Path: "a", Floor: 1, May: []string{"b"}},
		{Path: "b", Floor: 1, May: []string{"a"}},
	}
	got := Check(table, []Package{pkg("a", "b"), pkg("b", "a")})
	if want := []string{"circle: a -> b -> a"}; !slices.Equal(got, want) {
		t.Errorf("Check found %q, want %q", got, want)
	}
}

func TestCheck_RefusesATableThatAllowsUpwardImports(t *testing.T) {
	table := []Room{
		{Path: "low", Floor: 1, May: []string{"high", "nowhere"}},
		{Path: "high", Floor: 2},
		{Path: "high", Floor: 3},
	}
	want := []string{
		"high: two rows in the table",
		"low: may import high, which is not on its floor",
		"low: may import nowhere, which is not in the table",
	}
	if got := Check(table, nil); !slices.Equal(got, want) {
		t.Errorf("Check found %q, want %q", got, want)
	}
}
