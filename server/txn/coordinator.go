package txn

type phase uint8

const (
	fresh phase = iota
	preparing
	committing // COMMIT is being appended
	telling    // committed; participants are told
	ending
	done
)

// Coordinator is the coordinator's half of one transaction over other groups. It is a value without pointers (up to 64 participants).
// Invariant: committing is entered only when no vote is missing and none was no; a decision, once replied, never changes.
type Coordinator struct {
	phase    phase
	failed   bool   // a vote was no or lost
	n        uint16 // participants beside the coordinator's own group
	cause    uint16 // the first whose vote was no or lost
	missing  Set    // votes, later acknowledgements
	prepared Set    // said yes, or may have
}

// NewCoordinator begins a transaction with n participants beside the coordinator's own group.
func NewCoordinator(n int) Coordinator {
	return Coordinator{n: uint16(n), missing: all(n)}
}

// Recover returns the coordinator of a transaction whose COMMIT is in the log and whose END is not.
func Recover(n int) (Coordinator, Actions) {
	c := NewCoordinator(n)
	return c, Actions{c.tell()}
}

// Step takes one event and returns what to do. Events that no longer matter are ignored.
func (c *Coordinator) Step(ev Event) Actions {
	switch {
	case ev.Kind == Begin && c.phase == fresh:
		return c.begin()
	case ev.Kind == Voted && c.phase == preparing:
		return c.voted(ev)
	case ev.Kind == Logged && c.phase == committing:
		return c.logged(ev.Outcome)
	case ev.Kind == Acked && c.phase == telling:
		c.missing.remove(ev.From)
		if c.missing.Empty() {
			c.phase = ending
			return do(AppendEnd)
		}
	case ev.Kind == Ended && c.phase == ending:
		c.phase = done
	}
	return Actions{}
}

// Done reports whether nothing is left to do.
func (c *Coordinator) Done() bool { return c.phase == done }

// Undecided reports whether the transaction may still go either way.
func (c *Coordinator) Undecided() bool { return c.phase <= committing }

// Cause is the participant whose vote was the first that was not yes; false: there is none.
func (c *Coordinator) Cause() (int, bool) { return int(c.cause), c.failed }

func (c *Coordinator) begin() Actions {
	if c.n == 0 {
		c.phase = committing
		return do(AppendCommit)
	}
	c.phase, c.prepared = preparing, all(int(c.n))
	return Actions{{Kind: SendPrepare, To: all(int(c.n))}}
}

func (c *Coordinator) voted(ev Event) Actions {
	if !c.missing.Has(ev.From) {
		return Actions{}
	}
	c.missing.remove(ev.From)
	if ev.Outcome != OK && !c.failed {
		c.failed, c.cause = true, uint16(ev.From)
	}
	if ev.Outcome == No {
		c.prepared.remove(ev.From)
	}
	switch {
	case !c.missing.Empty(): // wait for all, so that an abort reaches everyone who prepared
		return Actions{}
	case c.failed:
		return c.abort()
	}
	c.phase = committing
	return do(AppendCommit)
}

func (c *Coordinator) abort() Actions {
	c.phase = done
	as := do(ReplyError)
	if !c.prepared.Empty() {
		as[1] = Action{Kind: SendAbort, To: c.prepared}
	}
	return as
}

func (c *Coordinator) logged(o Outcome) Actions {
	switch o {
	case No:
		return c.abort()
	case Unknown: // participants ask, and the log decides: telling them anything would be a guess
		c.phase = done
		return do(ReplyError)
	}
	return Actions{{Kind: Reply}, c.tell()}
}

func (c *Coordinator) tell() Action {
	if c.n == 0 {
		c.phase = done
		return Action{}
	}
	c.phase, c.missing = telling, all(int(c.n))
	return Action{Kind: SendCommit, To: all(int(c.n))}
}
