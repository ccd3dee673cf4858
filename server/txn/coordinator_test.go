package txn

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/objcache/objcache"
)

var update = flag.Bool("update", false, "write the transcripts anew, to be reviewed by eye")

var (
	errNo   = objcache.Errorf(objcache.NotExist, "no")
	errLost = objcache.Errorf(objcache.Unavailable, "lost")
)

func describe(a Action) string {
	names := map[ActionKind]string{SendPrepare: "send prepare", AppendCommit: "append commit", SendCommit: "send commit", SendAbort: "send abort", Reply: "reply", AppendEnd: "append end"}
	switch a.Kind {
	case AppendCommit, AppendEnd:
		return names[a.Kind]
	case Reply:
		if a.Err == nil {
			return "reply ok"
		}
		return "reply " + objcache.KindOf(a.Err).String()
	}
	return fmt.Sprintf("%s to %d", names[a.Kind], a.Group)
}

// command runs one line of a transcript: new G..., recover G..., begin, vote G yes|no|lost, logged ok|lost, ack G, ended.
func command(c *Coordinator, line string) (*Coordinator, []Action) {
	f := strings.Fields(line)
	var groups []objcache.GroupID
	for _, s := range f[1:] {
		var g objcache.GroupID
		if _, err := fmt.Sscan(s, &g); err == nil {
			groups = append(groups, g)
		}
	}
	err := map[string]error{"no": errNo, "lost": errLost}[f[len(f)-1]]
	switch f[0] {
	case "new":
		return NewCoordinator(groups), nil
	case "recover":
		return Recover(groups)
	case "begin":
		return c, c.Step(Event{Kind: Begin})
	case "vote":
		return c, c.Step(Event{Kind: Voted, Group: groups[0], Err: err})
	case "logged":
		return c, c.Step(Event{Kind: Logged, Err: err})
	case "ack":
		return c, c.Step(Event{Kind: Acked, Group: groups[0]})
	}
	return c, c.Step(Event{Kind: Ended})
}

func TestCoordinator_Transcripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			want, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			got := transcript(want)
			if *update {
				if err := os.WriteFile(name, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if !bytes.Equal(got, want) && !*update {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func transcript(in []byte) []byte {
	var out bytes.Buffer
	var c *Coordinator
	for s := bufio.NewScanner(bytes.NewReader(in)); s.Scan(); {
		line := s.Text()
		switch {
		case strings.HasPrefix(line, "  "):
			continue
		case line == "" || line[0] == '#':
			fmt.Fprintln(&out, line)
			continue
		}
		var as []Action
		c, as = command(c, line)
		fmt.Fprintln(&out, line)
		for _, a := range as {
			fmt.Fprintln(&out, "  "+describe(a))
		}
		if c.Done() {
			fmt.Fprintln(&out, "  done")
		}
	}
	return out.Bytes()
}

// explored is what a coordinator has said so far in one order of events.
type explored struct {
	yes, no          map[objcache.GroupID]bool
	appended, failed bool // AppendCommit; Reply with an error
	logged           bool
	replies          int
}

// TestCoordinator_NeverCommitsAgainstAVoteInAnyOrder walks every order of events up to a depth, duplicates and late ones included.
func TestCoordinator_NeverCommitsAgainstAVoteInAnyOrder(t *testing.T) {
	groups := []objcache.GroupID{1, 2}
	events := []Event{{Kind: Begin}, {Kind: Logged}, {Kind: Logged, Err: errLost}, {Kind: Ended}}
	for _, g := range groups {
		events = append(events, Event{Kind: Voted, Group: g}, Event{Kind: Voted, Group: g, Err: errNo}, Event{Kind: Voted, Group: g, Err: errLost}, Event{Kind: Acked, Group: g})
	}
	paths := 0
	var walk func(path []Event)
	walk = func(path []Event) {
		paths++
		if err := replay(groups, path); err != nil {
			t.Fatalf("%v after %+v", err, path)
		}
		if len(path) < 5 {
			for _, e := range events {
				walk(append(path[:len(path):len(path)], e))
			}
		}
	}
	walk(nil)
	t.Logf("%d orders of events", paths)
}

func replay(groups []objcache.GroupID, path []Event) error {
	c := NewCoordinator(groups)
	x := &explored{yes: map[objcache.GroupID]bool{}, no: map[objcache.GroupID]bool{}}
	for _, e := range path {
		// Only the first answer of a group counts, as each Prepare is answered once.
		if e.Kind == Voted && c.phase == preparing && !x.yes[e.Group] && !x.no[e.Group] {
			x.yes[e.Group], x.no[e.Group] = e.Err == nil, e.Err != nil
		}
		x.logged = x.logged || e.Kind == Logged && e.Err == nil && x.appended
		for _, a := range c.Step(e) {
			if err := x.check(groups, a); err != nil {
				return err
			}
		}
	}
	return nil
}

func (x *explored) check(groups []objcache.GroupID, a Action) error {
	switch a.Kind {
	case AppendCommit:
		for _, g := range groups {
			if !x.yes[g] {
				return fmt.Errorf("commit appended without the yes of %d", g)
			}
		}
		x.appended = true
	case SendCommit:
		if x.failed || !x.logged {
			return errors.New("commit sent although it is not in the log or an error was replied")
		}
	case SendAbort:
		if x.appended {
			return errors.New("abort sent after a commit was appended")
		}
	case Reply:
		if x.replies++; x.replies > 1 {
			return errors.New("replied twice")
		}
		if a.Err == nil && !x.logged {
			return errors.New("success replied before the commit is in the log")
		}
		x.failed = a.Err != nil
	}
	return nil
}
