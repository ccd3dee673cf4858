package bubble

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/objcache/objcache"
)

// input is what a sharer asked for, output what it heard.
type input struct{ op, key, value string }

type output struct {
	result  string
	unknown bool
}

func (i input) changes() bool { return i.op != "read" && i.op != "lookup" && i.op != "list" }

// file is true for an operation on one file, false for one on the names of the directories.
func (i input) file() bool { return i.op == "read" || i.op == "write" || i.op == "append" }

// check finds an order of all operations in which each result is right, for each file and for the names.
func check(ops []porcupine.Operation) error {
	parts := map[string][]porcupine.Operation{}
	for _, o := range ops {
		k := "names"
		if in := o.Input.(input); in.file() {
			k = in.key
		}
		parts[k] = append(parts[k], o)
	}
	for _, k := range slices.Sorted(maps.Keys(parts)) {
		model := files
		if k == "names" {
			model = names
		}
		part := prune(parts[k])
		if r := porcupine.CheckOperationsTimeout(model, part, 20*time.Second); r == porcupine.Illegal {
			return fmt.Errorf("the history of %s has no order in which all results are right:\n%s", k, describe(part))
		}
	}
	return nil
}

func describe(ops []porcupine.Operation) string {
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	var b strings.Builder
	for _, o := range ops {
		fmt.Fprintf(&b, "  [%d, %d] %+v -> %+v\n", o.Call, o.Return, o.Input, o.Output)
	}
	return b.String()
}

// prune drops writes of unknown outcome whose value nobody read: they can always have come last. Values are used once.
func prune(ops []porcupine.Operation) []porcupine.Operation {
	return slices.DeleteFunc(slices.Clone(ops), func(o porcupine.Operation) bool {
		in, out := o.Input.(input), o.Output.(output)
		if !out.unknown || in.op != "write" || in.value == "" { // an append moves the next one
			return false
		}
		return !slices.ContainsFunc(ops, func(r porcupine.Operation) bool {
			return r.Input.(input).op == "read" && strings.Contains(r.Output.(output).result, in.value)
		})
	})
}

// files is the model of one file's content.
var files = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, i, o any) (bool, any) {
		s, in, out := state.(string), i.(input), o.(output)
		switch in.op {
		case "write":
			return true, in.value
		case "append":
			return out.unknown || out.result == fmt.Sprint(len(s)), s + in.value
		}
		return out.result == s, s
	},
}

// names is the model of all directories together: a sorted list of "directory/name=inode".
var names = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, i, o any) (bool, any) {
		at := parseNames(state.(string))
		in, out := i.(input), o.(output)
		have, there := at[in.key]
		switch in.op {
		case "create":
			if there {
				return out.result == objcache.Exist.String(), state
			}
			at[in.key] = out.result
			return isIno(out.result), formatNames(at)
		case "unlink", "rename":
			if !there {
				return out.result == objcache.NotExist.String(), state
			}
			if in.key != in.value {
				delete(at, in.key)
				if in.op == "rename" {
					at[in.value] = have
				}
			}
			return out.result == "", formatNames(at)
		case "lookup":
			if !there {
				have = objcache.NotExist.String()
			}
			return out.result == have, state
		}
		maps.DeleteFunc(at, func(k, _ string) bool { return !strings.HasPrefix(k, in.key+"/") })
		return out.result == formatNames(at), state
	},
}

func isIno(s string) bool { return s != "" && s[0] >= '0' && s[0] <= '9' }

func parseNames(s string) map[string]string {
	at := map[string]string{}
	for _, f := range strings.Fields(s) {
		k, v, _ := strings.Cut(f, "=")
		at[k] = v
	}
	return at
}

func formatNames(at map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(at)) {
		out = append(out, k+"="+at[k])
	}
	return strings.Join(out, " ")
}
