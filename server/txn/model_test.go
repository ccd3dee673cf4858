package txn

// The model: groups with durable logs, a network that is a multiset of messages, S3, and the machines of this package between them. A state is a
// value of bytes, so that it is its own key.

const (
	maxTx    = 2
	maxParts = 2
	maxGroup = 3
)

// Messages between a coordinator and one participant.
const (
	mPrepare = iota
	mYes
	mNo
	mVoteLost // an answer that says "unknown"
	mCommit
	mAbort
	mAck
	mQuery
	mCommitted
	mAborted
	mKinds
)

// world is what a search is about.
type world struct {
	groups  int
	txs     []shape
	uploads uint8 // how often group 0 may persist the inode whose version each commit there raises
	coarse  bool  // no append of the two-phase commit is interrupted
	parts   bool  // by multipart upload
	faults  faults
	broken  breakage
}

// shape is one transaction: who coordinates, who else takes part.
type shape struct {
	coordinator uint8
	others      []uint8
}

// faults are how many of each may happen.
type faults struct{ Crashes, Losses, Dups, Foreign uint8 }

// breakage makes the world around the machines wrong, to see that the search notices.
type breakage struct {
	forgetFinished  bool // the log loses what was decided
	forgetBar       bool // the log loses the bar
	blindDenial     bool // "aborted" is answered without a look at the log
	forgetPromise   bool // the log loses a promise at a crash
	earlyEnd        bool // END is logged when COMMIT is
	forgetBegin     bool // BEGIN is not in the log when Complete is sent
	forgetIntent    bool // the log loses INTENT at a crash
	doneOfNewest    bool // DONE names the newest version, not the intent's
	unconditional   bool // S3 ignores conditions
	commitUnpromise bool // a vote that is no arrives as yes
}

type member struct {
	phase, row, finished, applied, aborted uint8
	commit                                 uint8 // the decision being appended
	net                                    [mKinds]uint8
}

type transaction struct {
	seq, live                                   uint8 // seq: term<<4 | counter; 0: not begun
	phase, failed, cause, missing, prepared     uint8 // the Coordinator
	refused, decision, committed, ended, doomed uint8 // doomed: the coordinator's memory of it is gone
	p                                           [maxParts]member
}

type state struct {
	tx      [maxTx]transaction
	term    [maxGroup]uint8
	counter [maxGroup]uint8
	bar     [maxGroup][maxGroup]uint8
	up      persist
	left    faults
}

func (s *state) initial(w *world) {
	s.left = w.faults
	for i := range s.term {
		s.term[i] = 1
	}
	s.up.version, s.up.base, s.up.object = 1, 1, 1
}

// wide is a TxSeq as the machines see it.
func wide(seq uint8) uint64 {
	v, _ := TxSeq(uint64(seq>>4), uint64(seq&15))
	return v
}

func narrow(b Bar) uint8 { return uint8(uint64(b)>>CounterBits)<<4 | uint8(uint64(b)&15) }

func (t *transaction) coordinator(n int) Coordinator {
	return Coordinator{
		phase: phase(t.phase), failed: t.failed != 0, cause: uint16(t.cause), n: uint16(n),
		missing: Set{low: uint64(t.missing)}, prepared: Set{low: uint64(t.prepared)},
	}
}

func (t *transaction) keep(c *Coordinator) {
	t.phase, t.failed, t.cause = uint8(c.phase), 0, uint8(c.cause)
	if c.failed {
		t.failed = 1
	}
	t.missing, t.prepared = uint8(c.missing.low), uint8(c.prepared.low)
}

// alive reports whether the coordinator's memory of the transaction is there.
func (t *transaction) alive() bool { return t.seq != 0 && t.doomed == 0 }

// holder is which transaction holds the lock of a group; -1: none.
func (s *state) holder(w *world, g uint8) int {
	for i := range w.txs {
		t := &s.tx[i]
		if w.txs[i].coordinator == g && t.alive() && (phase(t.phase) == preparing || phase(t.phase) == committing) {
			return i
		}
		for j, o := range w.txs[i].others {
			if p := promise(t.p[j].phase); o == g && p != idle && p != over {
				return i
			}
		}
	}
	return -1
}

// coordinate gives an event to a transaction's coordinator and carries out what it says.
func (s *state) coordinate(w *world, i int, ev Event) {
	t := &s.tx[i]
	c := t.coordinator(len(w.txs[i].others))
	as := c.Step(ev)
	t.keep(&c)
	for _, a := range as {
		switch a.Kind {
		case SendPrepare:
			t.live = s.minLive(w, w.txs[i].coordinator)
			s.sendAll(i, a.To, mPrepare)
		case SendCommit:
			s.sendAll(i, a.To, mCommit)
			if w.broken.earlyEnd {
				t.decision, t.ended = 0, 1
			}
		case SendAbort:
			s.sendAll(i, a.To, mAbort)
		case ReplyError:
			if ev.Outcome != Unknown || ev.Kind != Logged {
				t.refused = 1
			}
		}
	}
}

func (s *state) sendAll(i int, to Set, kind int) {
	for j := range to.All() {
		s.tx[i].p[j].net[kind]++
	}
}

func (s *state) minLive(w *world, g uint8) uint8 {
	least := uint8(255)
	for i := range w.txs {
		t := &s.tx[i]
		if w.txs[i].coordinator == g && t.alive() && phase(t.phase) <= committing {
			least = min(least, t.seq)
		}
	}
	return least
}

// several reports whether a group coordinates more than one transaction.
func (w *world) several(g uint8) bool {
	n := 0
	for _, x := range w.txs {
		if x.coordinator == g {
			n++
		}
	}
	return n > 1
}

// begin starts a transaction at its coordinator.
func (s *state) begin(w *world, i int) {
	g := w.txs[i].coordinator
	s.counter[g]++
	t := &s.tx[i]
	c := NewCoordinator(len(w.txs[i].others))
	if t.seq = 0x11; w.several(g) { // else any number will do
		t.seq = s.term[g]<<4 | s.counter[g]
	}
	t.keep(&c)
	s.coordinate(w, i, Event{Kind: Begin})
}

// participate gives an event to a participant and carries out what it says.
func (s *state) participate(w *world, i, j int, ev Event, passed bool) {
	m := &s.tx[i].p[j]
	p := Participant{promise(m.phase)}
	as := p.Step(ev, passed)
	m.phase = uint8(p.phase)
	if p.Over() {
		m.phase = uint8(idle)
	}
	for _, a := range as {
		switch a.Kind {
		case Promise:
			if h := s.holder(w, w.txs[i].others[j]); h >= 0 && h != i {
				s.participate(w, i, j, Event{Kind: Logged, Outcome: No}, false)
			}
		case VoteYes:
			m.net[mYes]++
		case VoteNo, Refuse:
			if w.broken.commitUnpromise {
				m.net[mYes]++
			} else {
				m.net[mNo]++
			}
		case VoteUnknown:
			m.net[mVoteLost]++
		case Acknowledge:
			if ev.Kind == Commit || ev.Kind == Logged && m.commit != 0 {
				m.net[mAck]++
			}
		case ApplyCommit:
			m.commit = 1
		case ApplyAbort:
			m.commit = 0
		case AskCoordinator:
			m.net[mQuery]++
		}
	}
}

// deliver takes in one message.
func (s *state) deliver(w *world, i, j, kind int) {
	t := &s.tx[i]
	g := w.txs[i].others[j]
	switch kind {
	case mPrepare:
		bar := Bar(0)
		if b := s.bar[g][w.txs[i].coordinator]; b != 0 {
			bar = Bar(wide(b))
		}
		s.participate(w, i, j, Event{Kind: Arrived}, bar.Refuses(wide(t.seq), t.p[j].finished != 0))
	case mCommit, mCommitted:
		s.participate(w, i, j, Event{Kind: Commit}, false)
	case mAbort, mAborted:
		s.participate(w, i, j, Event{Kind: Abort}, false)
	case mQuery:
		s.answer(w, i, j)
	default:
		if t.alive() {
			evs := [...]Event{mYes: {Voted, j, OK}, mNo: {Voted, j, No}, mVoteLost: {Voted, j, Unknown}, mAck: {Kind: Acked, From: j}}
			s.coordinate(w, i, evs[kind])
		}
	}
}

// answer is what a coordinator's group says to a participant in doubt.
func (s *state) answer(w *world, i, j int) {
	t := &s.tx[i]
	c := t.coordinator(len(w.txs[i].others))
	switch {
	case w.broken.blindDenial:
		t.p[j].net[mAborted]++
	case t.alive() && c.Undecided(): // pending: no answer helps
	case t.decision != 0:
		t.p[j].net[mCommitted]++
	default:
		t.p[j].net[mAborted]++
	}
}

// appendAt is the append that a participant waits for: it reaches the log, or not, and is reported as o.
func (s *state) appendAt(w *world, i, j int, logged bool, o Outcome) {
	if logged {
		s.apply(w, i, j)
	}
	s.participate(w, i, j, Event{Kind: Logged, Outcome: o}, false)
}

// apply is what server/group's apply does with a participant's entry.
func (s *state) apply(w *world, i, j int) {
	t := &s.tx[i]
	m := &t.p[j]
	g, from := w.txs[i].others[j], w.txs[i].coordinator
	bar := &s.bar[g][from]
	old := Bar(0)
	if *bar != 0 {
		old = Bar(wide(*bar))
	}
	if promise(m.phase) == promising {
		m.row = 1
		now := old.Raise(wide(t.seq), wide(t.live))
		if !w.broken.forgetBar {
			*bar = narrow(now)
		}
		for k := range w.txs {
			for l, o := range w.txs[k].others {
				if o == g && w.txs[k].coordinator == from && Bar(wide(s.tx[k].seq)) < now {
					s.tx[k].p[l].finished = 0
				}
			}
		}
		return
	}
	if m.row == 0 {
		return
	}
	m.row = 0
	if m.commit != 0 {
		m.applied++
		s.raise(g)
	} else {
		m.aborted = 1
	}
	if old.Remembers(wide(t.seq)) && !w.broken.forgetFinished {
		m.finished = 1
	}
}
