package txn

import (
	"fmt"
	"hash/maphash"
	"sync/atomic"
	"testing"
)

// What a transition does; with the transaction and participant it is a line of a counter-example.
const (
	tBegin = iota
	tDeliver
	tDuplicate
	tTimeout
	tAppend
	tAppendUnknown
	tAppendLost
	tCommitLogged
	tCommitUnknown
	tCommitLost
	tEnd
	tResend
	tAsk
	tCrash
	tIntent
	tResume
	tRequest
	tRequestLost
	tReplyLost
	tDelayed
	tTwice
	tLog
	tLogUnknown
	tLogLost
	tLands
	tForeign
)

var transitionNames = [...]string{
	"begin", "deliver", "deliver twice", "give up waiting for the vote", "append", "append, reported unknown", "append lost", "COMMIT logged",
	"COMMIT logged, reported unknown", "COMMIT lost", "END logged", "say commit again", "ask", "crash", "INTENT", "resume the upload", "request",
	"request lost", "reply lost", "request delayed", "request arrives twice", "log", "log, reported unknown", "log lost", "delayed request lands",
	"foreign write",
}

type label struct{ what, i, j, k uint8 }

func (l label) String() string {
	return fmt.Sprintf("%s tx=%d participant=%d %d", transitionNames[l.what], l.i, l.j, l.k)
}

// each calls yield with every state that may follow s. faulty: with faults as far as they are left.
func (w *world) each(s *state, faulty bool, yield func(label, *state)) {
	for i := range w.txs {
		w.coordinatorMoves(s, i, faulty, yield)
		for j := range w.txs[i].others {
			w.networkMoves(s, i, j, faulty, yield)
			w.participantMoves(s, i, j, faulty, yield)
		}
	}
	if w.uploads > 0 {
		w.uploadMoves(s, faulty, yield)
	}
	if faulty && s.left.Crashes > 0 {
		for g := range w.groups {
			w.crashes(s, uint8(g), yield)
		}
	}
}

func (w *world) coordinatorMoves(s *state, i int, faulty bool, yield func(label, *state)) {
	t := &s.tx[i]
	l := func(what uint8) label { return label{what: what, i: uint8(i)} }
	if t.seq == 0 && faulty && s.holder(w, w.txs[i].coordinator) < 0 {
		n := *s
		n.begin(w, i)
		yield(l(tBegin), &n)
	}
	if !t.alive() {
		return
	}
	switch phase(t.phase) {
	case committing:
		w.commit(s, i, true, OK, l(tCommitLogged), yield)
		if faulty && s.left.Losses > 0 {
			w.commit(s, i, true, Unknown, l(tCommitUnknown), yield)
			w.commit(s, i, false, Unknown, l(tCommitLost), yield)
		}
	case ending:
		n := *s
		n.tx[i].decision, n.tx[i].ended = 0, 1
		n.coordinate(w, i, Event{Kind: Ended})
		yield(l(tEnd), &n)
	}
}

func (w *world) commit(s *state, i int, logged bool, o Outcome, l label, yield func(label, *state)) {
	n := *s
	if logged {
		n.logCommit(w, i)
	}
	if o != OK {
		n.left.Losses--
	}
	n.coordinate(w, i, Event{Kind: Logged, Outcome: o})
	yield(l, &n)
}

func (s *state) logCommit(w *world, i int) {
	if len(w.txs[i].others) > 0 {
		s.tx[i].decision = 1
	}
	s.tx[i].committed++
	s.raise(w.txs[i].coordinator)
}

// raise is the effect of a commit at a group.
func (s *state) raise(g uint8) {
	if g == 0 {
		s.up.version++
	}
}

func (w *world) networkMoves(s *state, i, j int, faulty bool, yield func(label, *state)) {
	m := &s.tx[i].p[j]
	for k := range uint8(mKinds) {
		if m.net[k] == 0 {
			continue
		}
		l := label{i: uint8(i), j: uint8(j), k: k}
		n := *s
		n.tx[i].p[j].net[k]--
		n.deliver(w, i, j, int(k))
		l.what = tDeliver
		yield(l, &n)
		if faulty && s.left.Dups > 0 {
			n = *s
			n.left.Dups--
			n.deliver(w, i, j, int(k))
			l.what = tDuplicate
			yield(l, &n)
		}
	}
}

func (w *world) participantMoves(s *state, i, j int, faulty bool, yield func(label, *state)) {
	t := &s.tx[i]
	m := &t.p[j]
	l := label{i: uint8(i), j: uint8(j)}
	say := func(what uint8, n *state) { l.what = what; yield(l, n) }
	switch promise(m.phase) {
	case promising, applying, withdrawing:
		n := *s
		n.appendAt(w, i, j, true, OK)
		say(tAppend, &n)
		if faulty && s.left.Losses > 0 {
			n = *s
			n.left.Losses--
			lost := n
			n.appendAt(w, i, j, true, Unknown)
			say(tAppendUnknown, &n)
			lost.appendAt(w, i, j, false, Unknown)
			say(tAppendLost, &lost)
		}
	case promised, unsure:
		c := t.coordinator(len(w.txs[i].others))
		pending := t.alive() && c.Undecided() // the answer would not help
		if !pending && m.net[mQuery]+m.net[mCommitted]+m.net[mAborted]+m.net[mCommit]+m.net[mAbort] == 0 {
			n := *s
			n.participate(w, i, j, Event{Kind: Doubtful}, false)
			say(tAsk, &n)
		}
	}
	if !t.alive() || t.missing&(1<<j) == 0 {
		return
	}
	switch phase(t.phase) {
	case preparing:
		silent := m.net[mPrepare]+m.net[mYes]+m.net[mNo]+m.net[mVoteLost] == 0 && promise(m.phase) != promising
		if silent || faulty && s.left.Losses > 0 {
			n := *s
			if !silent {
				n.left.Losses--
			}
			n.coordinate(w, i, Event{Kind: Voted, From: j, Outcome: Unknown})
			say(tTimeout, &n)
		}
	case telling:
		if m.net[mCommit]+m.net[mAck] == 0 && promise(m.phase) != applying {
			n := *s
			n.tx[i].p[j].net[mCommit]++
			say(tResend, &n)
		}
	}
}

func (w *world) uploadMoves(s *state, faulty bool, yield func(label, *state)) {
	u := &s.up
	for i := range u.strays {
		if u.strays[i] != (request{}) {
			n := *s
			n.up.strays[i] = request{}
			n.up.serve(w, u.strays[i])
			yield(label{what: tLands, i: uint8(i)}, &n)
		}
	}
	if faulty && s.left.Foreign > 0 {
		n := *s
		n.left.Foreign--
		n.up.object, n.up.foreign = foreignObject, 1
		yield(label{what: tForeign}, &n)
	}
	switch {
	case u.active == 0 && u.intent == 0 && u.version > u.base && u.intents < w.uploads && s.holder(w, 0) < 0 && (!w.coarse || s.allBegun(w)):
		n := *s
		n.up.intent, n.up.target, n.up.begun = u.version, u.base, 0
		n.up.intents++
		n.up.start(w, true)
		yield(label{what: tIntent}, &n)
	case u.active == 0 && u.intent != 0:
		n := *s
		n.up.start(w, false)
		yield(label{what: tResume}, &n)
	case u.active != 0 && u.logs():
		w.uploadLogs(s, faulty, yield)
	case u.active != 0:
		w.uploadRequests(s, faulty, yield)
	}
}

// allBegun keeps a large world small: its upload overlaps with the ends of its transactions.
func (s *state) allBegun(w *world) bool {
	for i := range w.txs {
		if s.tx[i].seq == 0 {
			return false
		}
	}
	return true
}

func (w *world) uploadLogs(s *state, faulty bool, yield func(label, *state)) {
	if UploadAction(s.up.last) == LogDone && s.holder(w, 0) >= 0 {
		return // the transaction of DONE waits for the lock
	}
	n := *s
	n.up.logged(w)
	n.up.step(w, Did)
	yield(label{what: tLog, k: s.up.last}, &n)
	if faulty && s.left.Losses > 0 {
		n = *s
		n.left.Losses--
		lost := n
		n.up.logged(w)
		n.up.step(w, OutcomeLost)
		yield(label{what: tLogUnknown, k: s.up.last}, &n)
		lost.up.step(w, OutcomeLost)
		yield(label{what: tLogLost, k: s.up.last}, &lost)
	}
}

func (w *world) uploadRequests(s *state, faulty bool, yield func(label, *state)) {
	r := s.up.request()
	l := label{k: r.kind}
	say := func(what uint8, n *state) { l.what = what; yield(l, n) }
	if UploadAction(r.kind) == Create && int(s.up.next)+1 >= len(s.up.uploads) {
		panic("more uploads than the model has room for")
	}
	n := *s
	o := n.up.serve(w, r)
	n.up.answered()
	served := n
	n.up.step(w, o)
	say(tRequest, &n)
	if !faulty {
		return
	}
	if r.delayable() && s.left.Dups > 0 {
		if n.left.Dups--; n.up.stray(r) {
			say(tTwice, &n)
		}
	}
	if s.left.Losses == 0 {
		return
	}
	n = *s
	n.left.Losses--
	delayed := n
	n.up.step(w, OutcomeLost)
	say(tRequestLost, &n)
	served.left.Losses--
	served.up.created, served.up.seen = s.up.created, s.up.seen
	served.up.step(w, OutcomeLost)
	say(tReplyLost, &served)
	if r.delayable() && delayed.up.stray(r) {
		delayed.up.step(w, OutcomeLost)
		say(tDelayed, &delayed)
	}
}

// crashes of one group: of each append under way, and of a request to S3, either may be true.
func (w *world) crashes(s *state, g uint8, yield func(label, *state)) {
	for variant := range uint8(8) {
		n := *s
		n.left.Crashes--
		used := n.crash(w, g, variant)
		if variant&^used != 0 {
			continue // the same as a smaller variant
		}
		yield(label{what: tCrash, i: g, k: variant}, &n)
	}
}

// crash loses what is in memory and starts from the rows. Bits of variant let appends under way reach the log; used are those that meant anything.
func (s *state) crash(w *world, g, variant uint8) (used uint8) {
	for i := range w.txs {
		t := &s.tx[i]
		if w.txs[i].coordinator == g && t.alive() && phase(t.phase) == committing {
			if used |= 1; variant&1 != 0 {
				s.logCommit(w, i)
			}
		}
		for j, o := range w.txs[i].others {
			switch promise(t.p[j].phase) {
			case promising, applying, withdrawing:
				if o != g {
					continue
				}
				if used |= 2; variant&2 != 0 {
					s.apply(w, i, j)
				}
			}
		}
	}
	if u := &s.up; w.uploads > 0 && g == 0 {
		if u.active != 0 && !(UploadAction(u.last) == LogDone && s.holder(w, 0) >= 0) {
			if used |= 4; variant&4 != 0 {
				u.last4(w)
			}
		}
		if u.forget(); w.broken.forgetIntent {
			u.intent, u.begun = 0, 0
		}
	}
	s.term[g]++
	s.counter[g] = 0
	for i := range w.txs {
		s.restart(w, i, g)
	}
	return used
}

// last4 is a request, or an append of the upload, that takes effect although nobody is left to hear of it.
func (u *persist) last4(w *world) {
	if u.logs() {
		u.logged(w)
		return
	}
	if r := u.request(); !r.delayable() || !u.stray(r) {
		u.serve(w, r)
	}
}

// restart is recovery of one transaction at a group.
func (s *state) restart(w *world, i int, g uint8) {
	t := &s.tx[i]
	if w.txs[i].coordinator == g && t.seq != 0 {
		t.phase, t.missing, t.prepared, t.failed, t.cause, t.doomed = uint8(done), 0, 0, 0, 0, 1
		if t.decision != 0 {
			c, as := Recover(len(w.txs[i].others))
			t.doomed = 0
			t.keep(&c)
			s.sendAll(i, as[1].To, mCommit)
			s.sendAll(i, as[0].To, mCommit)
		}
	}
	for j, o := range w.txs[i].others {
		if o != g {
			continue
		}
		m := &t.p[j]
		if m.phase, m.commit = uint8(idle), 0; w.broken.forgetPromise {
			m.row = 0
		}
		if m.row != 0 {
			s.participate(w, i, j, Event{Kind: Restarted}, false)
		}
	}
}

// wrong says which promise a state breaks; empty: none.
func (w *world) wrong(s *state) string {
	for i := range w.txs {
		t := &s.tx[i]
		if t.committed > 1 {
			return "committed twice"
		}
		if t.committed != 0 && t.refused != 0 {
			return "committed, and the client was told that it was not"
		}
		for j := range w.txs[i].others {
			m := &t.p[j]
			switch {
			case m.applied > 1:
				return "an effect was applied twice"
			case m.applied != 0 && t.committed == 0:
				return "an effect was applied that was not committed"
			case m.aborted != 0 && t.committed != 0:
				return "a promise was dropped that was committed"
			case t.ended != 0 && m.applied == 0:
				return "ended before every participant had the decision"
			}
		}
	}
	if w.uploads > 0 {
		return s.up.wrong()
	}
	return ""
}

// settled reports whether nothing is left to do: no lock, no promise, no decision that is not told, no upload.
func (w *world) settled(s *state) bool {
	for g := range uint8(w.groups) {
		if s.holder(w, g) >= 0 {
			return false
		}
	}
	for i := range w.txs {
		t := &s.tx[i]
		for j := range w.txs[i].others {
			if m := &t.p[j]; m.row != 0 || t.committed != 0 && m.applied == 0 {
				return false
			}
		}
		if t.decision != 0 {
			return false
		}
	}
	u := &s.up
	return w.uploads == 0 || u.intent == 0 && u.active == 0 && (u.base == u.version || u.intents == w.uploads || w.coarse && !s.allBegun(w)) && u.uploads == [9]uint8{}
}

// goOn is what happens in a network without faults: the first move there is. Decisions that nobody tells any more are told after a restart.
func (w *world) goOn(s *state) (state, bool) {
	var next state
	found := false
	best := 0
	w.each(s, false, func(l label, n *state) {
		if r := rank[l.what]; !found || r < best {
			next, found, best = *n, true, r
		}
	})
	if found {
		return next, true
	}
	for i := range w.txs {
		if s.tx[i].decision != 0 {
			next = *s
			next.crash(w, w.txs[i].coordinator, 0)
			return next, true
		}
	}
	return next, false
}

// rank: what is on its way arrives before anybody says anything again.
var rank = [...]int{tDeliver: 0, tAppend: 1, tCommitLogged: 1, tEnd: 1, tLands: 1, tTimeout: 2, tRequest: 3, tLog: 3, tResume: 3, tIntent: 3, tResend: 4, tAsk: 5}

// search walks every state that can be reached.
type search struct {
	w     *world
	seed  maphash.Seed
	seen  table // states that were met
	ends  table // states from which everything ends when nothing fails any more
	trail []step
	stack []pending
	path  []uint64 // of allEnds
}

type step struct {
	from int32
	by   label
}

type pending struct {
	s    state
	node int32
}

// run returns the number of distinct states, and what is wrong with one of them.
func (x *search) run() (int, error) {
	x.seed = maphash.MakeSeed()
	x.seen.grow(1 << 16)
	x.ends.grow(1 << 16)
	var first state
	first.initial(x.w)
	x.meet(&first, -1, label{})
	for len(x.stack) > 0 {
		at := x.stack[len(x.stack)-1]
		x.stack = x.stack[:len(x.stack)-1]
		if what := x.w.wrong(&at.s); what != "" {
			return x.seen.n, x.counterExample(what, at.node)
		}
		// A large world is asked at every eighth state: what it leaves behind, the smaller ones without S3 leave behind as well.
		if h := maphash.Comparable(x.seed, at.s); (!x.w.coarse || h&7 == 0) && !(x.allEnds(at.s) && x.allEnds(at.s.silent(x.w))) {
			return x.seen.n, x.counterExample("something is left for ever", at.node)
		}
		x.w.each(&at.s, true, func(l label, n *state) { x.meet(n, at.node, l) })
	}
	return x.seen.n, nil
}

// appendNow lets every append of the two-phase commit reach the log at once.
func (s *state) appendNow(w *world) {
	for i := range w.txs {
		t := &s.tx[i]
		if phase(t.phase) == committing && t.alive() {
			s.logCommit(w, i)
			s.coordinate(w, i, Event{Kind: Logged})
		}
		if phase(t.phase) == ending && t.alive() {
			t.decision, t.ended = 0, 1
			s.coordinate(w, i, Event{Kind: Ended})
		}
		for j := range w.txs[i].others {
			switch promise(t.p[j].phase) {
			case promising, applying, withdrawing:
				s.appendAt(w, i, j, true, OK)
			}
		}
	}
	for s.up.active != 0 && s.up.logs() && (UploadAction(s.up.last) != LogDone || s.holder(w, 0) < 0) {
		s.up.logged(w)
		s.up.step(w, Did)
	}
}

// forgetIdle takes out what can make no difference any more, so that fewer states differ: votes and acknowledgements that a coordinator will ignore, and
// the term and counter of a group that begins nothing more.
func (s *state) forgetIdle(w *world) {
	for g := range uint8(w.groups) {
		more := false
		for i := range w.txs {
			more = more || w.txs[i].coordinator == g && s.tx[i].seq == 0
		}
		if !more {
			s.term[g], s.counter[g] = 0, 0
		}
	}
	for i := range w.txs {
		t := &s.tx[i]
		if t.seq == 0 {
			continue
		}
		for j := range w.txs[i].others {
			m := &t.p[j]
			if phase(t.phase) > preparing {
				m.net[mYes], m.net[mNo], m.net[mVoteLost] = 0, 0, 0
			}
			if phase(t.phase) == done && t.decision == 0 {
				m.net[mAck] = 0
			}
			for _, k := range []int{mAck, mCommit, mAbort, mCommitted, mAborted} {
				m.net[k] = min(m.net[k], 1) // the same message twice is once and a duplicate
			}
		}
	}
}

func (x *search) meet(s *state, from int32, by label) {
	if x.w.coarse {
		s.appendNow(x.w)
	}
	s.forgetIdle(x.w)
	if x.seen.add(maphash.Comparable(x.seed, *s)) {
		x.trail = append(x.trail, step{from, by})
		x.stack = append(x.stack, pending{*s, int32(len(x.trail) - 1)})
	}
}

// allEnds follows the network without faults until it meets a state of which that is known, or a settled one.
func (x *search) allEnds(s state) bool {
	x.path = x.path[:0]
	for len(x.path) < 500 {
		h := maphash.Comparable(x.seed, s)
		if x.ends.has(h) {
			return x.theseEnd()
		}
		x.path = append(x.path, h)
		next, ok := x.w.goOn(&s)
		if !ok {
			return x.w.settled(&s) && x.theseEnd()
		}
		s = next
	}
	return false
}

// silent is the state in which every message on its way is lost.
func (s state) silent(w *world) state {
	for i := range w.txs {
		for j := range w.txs[i].others {
			s.tx[i].p[j].net = [mKinds]uint8{}
		}
	}
	s.up.strays = [2]request{}
	return s
}

func (x *search) theseEnd() bool {
	for _, h := range x.path {
		x.ends.add(h)
	}
	return true
}

func (x *search) counterExample(what string, node int32) error {
	var lines string
	for n := node; n > 0; n = x.trail[n].from {
		lines = "\n  " + x.trail[n].by.String() + lines
	}
	return fmt.Errorf("%s after%s", what, lines)
}

// table is a set of hashes of 64 bits: of ten million states, two have the same with a probability below 1 in 100,000.
type table struct {
	slots []uint64
	n     int
}

func (t *table) grow(n int) {
	old := t.slots
	t.slots, t.n = make([]uint64, n), 0
	for _, h := range old {
		if h != 0 {
			t.add(h)
		}
	}
}

func (t *table) add(h uint64) bool {
	if 2*t.n > len(t.slots) {
		t.grow(4 * len(t.slots))
	}
	i, ok := t.find(h | 1)
	if !ok {
		t.slots[i] = h | 1
		t.n++
	}
	return !ok
}

func (t *table) has(h uint64) bool {
	_, ok := t.find(h | 1)
	return ok
}

func (t *table) find(h uint64) (int, bool) {
	for i := h >> 1 & uint64(len(t.slots)-1); ; i = (i + 1) & uint64(len(t.slots)-1) {
		if t.slots[i] == h || t.slots[i] == 0 {
			return int(i), t.slots[i] == h
		}
	}
}

// worlds are small enough to be walked whole, with -race and other tests beside.
var (
	overlapping = []shape{{0, []uint8{1}}, {1, []uint8{0}}}
	worlds      = map[string]*world{
		"two transactions over two groups": {groups: 2, txs: overlapping, faults: faults{Crashes: 1, Losses: 1, Dups: 1}},
		"two transactions over two groups and S3": {
			groups: 2, txs: overlapping, uploads: 1, coarse: true, faults: faults{Crashes: 2, Losses: 2, Dups: 1},
		},
		"two transactions of one coordinator": {groups: 2, txs: []shape{{0, []uint8{1}}, {0, []uint8{1}}}, faults: faults{Crashes: 1, Losses: 1, Dups: 1}},
		"one transaction over three groups":   {groups: 3, txs: []shape{{0, []uint8{1, 2}}}, faults: faults{Crashes: 2, Losses: 2, Dups: 1}},
		"two versions uploaded in parts": {
			groups: 1, txs: []shape{{0, nil}, {0, nil}}, uploads: 2, parts: true, faults: faults{Crashes: 2, Losses: 1, Dups: 1, Foreign: 1},
		},
		"two versions put": {groups: 1, txs: []shape{{0, nil}, {0, nil}}, uploads: 2, faults: faults{Crashes: 2, Losses: 2, Dups: 1, Foreign: 1}},
	}
)

func TestSearch_EveryOrderLossDuplicateAndCrashKeepsThePromises(t *testing.T) {
	var total atomic.Int64
	t.Run("worlds", func(t *testing.T) {
		for name, w := range worlds {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				x := search{w: w}
				n, err := x.run()
				total.Add(int64(n))
				if t.Logf("%d states", n); err != nil {
					t.Error(err)
				}
			})
		}
	})
	if t.Logf("%d distinct states", total.Load()); total.Load() <= 1_000_000 {
		t.Errorf("only %d states", total.Load())
	}
}

// TestSearch_NoticesABrokenWorld: the search would be worth nothing if it passed whatever happens.
func TestSearch_NoticesABrokenWorld(t *testing.T) {
	for name, c := range map[string]struct {
		in string
		b  breakage
	}{
		"what was decided is forgotten":     {"two transactions of one coordinator", breakage{forgetFinished: true}},
		"the bar is forgotten":              {"two transactions of one coordinator", breakage{forgetBar: true}},
		"aborted without a look at the log": {"one transaction over three groups", breakage{blindDenial: true}},
		"a promise is forgotten":            {"one transaction over three groups", breakage{forgetPromise: true}},
		"END before every acknowledgement":  {"one transaction over three groups", breakage{earlyEnd: true}},
		"commit although a vote is no":      {"two transactions over two groups", breakage{commitUnpromise: true}},
		"parts before BEGIN is logged":      {"two versions uploaded in parts", breakage{forgetBegin: true}},
		"INTENT is not in the log":          {"two versions put", breakage{forgetIntent: true}},
		"DONE of another version":           {"two versions put", breakage{doneOfNewest: true}},
		"conditions that nobody looks at":   {"two versions put", breakage{unconditional: true}},
	} {
		t.Run(name, func(t *testing.T) {
			w := *worlds[c.in]
			w.broken = c.b
			x := search{w: &w}
			n, err := x.run()
			if err == nil {
				t.Fatalf("nothing found in %d states", n)
			}
			t.Logf("%d states: %v", n, err)
		})
	}
}
