package txn

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the transcripts anew, to be reviewed by eye")

var actionNames = map[ActionKind]string{
	SendPrepare: "send prepare to", AppendCommit: "append commit", SendCommit: "send commit to", SendAbort: "send abort to", Reply: "reply ok",
	ReplyError: "reply error", AppendEnd: "append end", Promise: "lock, evaluate, append prepare", VoteYes: "vote yes", VoteNo: "vote no",
	VoteUnknown: "vote unknown", Refuse: "refuse", ApplyCommit: "append the commit's news", ApplyAbort: "append the abort's news",
	Acknowledge: "acknowledge", NotYet: "not yet", Release: "release", AskCoordinator: "ask the coordinator",
}

var uploadNames = [...]string{
	"await requests", "head", "head again", "abort the upload in the log", "sweep", "copy", "put", "create", "log begin", "send parts", "complete",
	"keep both", "log the new condition", "log done", "log given up", "drop the upload, stop", "stop", "end",
}

var (
	eventNames = map[string]EventKind{
		"begin": Begin, "vote": Voted, "logged": Logged, "ack": Acked, "ended": Ended, "prepare": Arrived, "commit": Commit, "abort": Abort,
		"doubt": Doubtful, "restart": Restarted,
	}
	outcomeNames = map[string]Outcome{"yes": OK, "ok": OK, "no": No, "lost": Unknown}
	uploadWords  = map[string]UploadOutcome{
		"did": Did, "ours": Ours, "other": Other, "absent": Absent, "unsuitable": Unsuitable, "refused": Refused, "lost": OutcomeLost,
	}
)

// script runs the lines of a transcript. A line names the machine it is for:
//
//	coordinator N | recover N | begin | vote I yes|no|lost | logged ok|no|lost | ack I | ended
//	p: prepare [bar B decided] | p: logged ... | p: commit | p: abort | p: doubt | p: restart   (p: new forgets the machine)
//	upload WORD... | u: OUTCOME
type script struct {
	c   Coordinator
	p   Participant
	bar Bar
	u   Upload
}

func (x *script) run(line string) string {
	f := strings.Fields(line)
	number := func(i int) int { return int(numberOf(f, i)) }
	switch f[0] {
	case "coordinator":
		x.c = NewCoordinator(number(1))
		return ""
	case "recover":
		c, as := Recover(number(1))
		x.c = c
		return describe(as)
	case "p:":
		return x.participant(f[1:])
	case "upload":
		u, a := NewUpload(facts(f[1:]))
		x.u = u
		return "  " + uploadNames[a] + "\n"
	case "u:":
		return "  " + uploadNames[x.u.Step(uploadWords[f[1]])] + "\n"
	}
	out := describe(x.c.Step(Event{Kind: eventNames[f[0]], From: number(1), Outcome: outcomeNames[f[len(f)-1]]}))
	if x.c.Done() {
		out += "  done\n"
	}
	return out
}

// participant: "prepare SEQ live MIN [decided]" asks and raises the bar as server/group does.
func (x *script) participant(f []string) string {
	if f[0] == "new" {
		x.p = Participant{}
		return ""
	}
	passed := false
	if f[0] == "prepare" && len(f) > 3 {
		seq, live := numberOf(f, 1), numberOf(f, 3)
		passed = x.bar.Refuses(seq, f[len(f)-1] == "decided")
		if !passed {
			x.bar = x.bar.Raise(seq, live)
		}
	}
	return describe(x.p.Step(Event{Kind: eventNames[f[0]], Outcome: outcomeNames[f[len(f)-1]]}, passed))
}

// numberOf is the i-th word as a number; 0: there is none.
func numberOf(f []string, i int) uint64 {
	if i >= len(f) {
		return 0
	}
	n, err := strconv.ParseUint(f[i], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func facts(words []string) UploadFacts {
	has := func(w string) bool { return strings.Contains(" "+strings.Join(words, " ")+" ", " "+w+" ") }
	return UploadFacts{
		Fresh: has("fresh"), Done: has("done"), Begun: has("begun"), Gone: has("gone"), Parts: has("parts"), Copy: has("copy"),
		Unconditional: has("unconditional"), Overwrite: has("overwrite"),
	}
}

func describe(as Actions) string {
	var b strings.Builder
	for _, a := range as {
		if a.Kind == Nothing {
			continue
		}
		b.WriteString("  " + actionNames[a.Kind])
		for i := range a.To.All() {
			fmt.Fprintf(&b, " %d", i)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func TestTranscripts(t *testing.T) {
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
	x := &script{}
	for s := bufio.NewScanner(bytes.NewReader(in)); s.Scan(); {
		line := s.Text()
		switch {
		case strings.HasPrefix(line, "  "):
		case line == "" || line[0] == '#':
			fmt.Fprintln(&out, line)
		default:
			fmt.Fprintln(&out, line)
			out.WriteString(x.run(line))
		}
	}
	return out.Bytes()
}

func TestSet_BeyondOneWord(t *testing.T) {
	s := all(130)
	s.remove(64)
	s.remove(3)
	n := 0
	for i := range s.All() {
		if i == 64 || i == 3 || i >= 130 {
			t.Errorf("%d is in the set", i)
		}
		n++
	}
	if n != 128 || s.Empty() || !s.Has(129) {
		t.Errorf("%d members", n)
	}
}

func TestTxSeq_GrowsWithTheTermAndEndsWithItsNumbers(t *testing.T) {
	a, _ := TxSeq(1, 1<<CounterBits-1)
	b, ok := TxSeq(2, 0)
	if a >= b || !ok {
		t.Errorf("%x is not below %x", a, b)
	}
	if _, ok := TxSeq(1, 1<<CounterBits); ok {
		t.Error("a counter ran into the term")
	}
}
