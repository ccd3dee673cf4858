// Package txn is two-phase commit with presumed abort as step machines: (state, event) -> (state, actions). It promises that a
// coordinator commits only after every participant said yes, and decides once. It has no clock, does no I/O and starts no
// goroutine: the group carries the actions out and reports what happened as the next events.
package txn

import "github.com/objcache/objcache"

// Event is what happened to a coordinator's transaction.
type Event struct {
	Kind  EventKind
	Group objcache.GroupID // Voted, Acked
	Err   error            // Voted: why the answer is no; Logged: why the append failed
}

// EventKind is one of the events.
type EventKind uint8

// The events.
const (
	Begin  EventKind = iota // own steps are evaluated under their locks
	Voted                   // a participant answered a Prepare; Err nil means yes
	Logged                  // the append of COMMIT returned; Err nil means it is committed
	Acked                   // a participant has applied the decision
	Ended                   // the append of END returned
)

// Action is what the group must do next.
type Action struct {
	Kind  ActionKind
	Group objcache.GroupID // SendPrepare, SendCommit, SendAbort
	Err   error            // Reply
}

// ActionKind is one of the actions.
type ActionKind uint8

// The actions.
const (
	SendPrepare ActionKind = iota
	AppendCommit
	SendCommit
	SendAbort // best effort
	Reply     // to the client; Err nil: committed. The locks are released with it
	AppendEnd
)

type phase uint8

const (
	fresh phase = iota
	preparing
	committing // COMMIT is being appended
	telling    // committed; participants are told
	ending
	done
)

// Coordinator is the coordinator's half of one transaction over other groups. Invariant: committing is entered only when no vote is missing
// and none was no; a decision, once replied, never changes.
type Coordinator struct {
	phase    phase
	others   []objcache.GroupID
	missing  map[objcache.GroupID]bool // votes, later acknowledgements
	prepared map[objcache.GroupID]bool // said yes, or may have
	err      error
}

// NewCoordinator begins a transaction with these participants beside the coordinator's own group.
func NewCoordinator(others []objcache.GroupID) *Coordinator {
	c := &Coordinator{others: others, missing: map[objcache.GroupID]bool{}, prepared: map[objcache.GroupID]bool{}}
	for _, g := range others {
		c.missing[g] = true
	}
	return c
}

// Recover returns the coordinator of a transaction whose COMMIT is in the log and whose END is not.
func Recover(others []objcache.GroupID) (*Coordinator, []Action) {
	c := NewCoordinator(others)
	return c, c.tell()
}

// Step takes one event and returns what to do. Events that no longer matter are ignored.
func (c *Coordinator) Step(ev Event) []Action {
	switch {
	case ev.Kind == Begin && c.phase == fresh:
		return c.begin()
	case ev.Kind == Voted && c.phase == preparing:
		return c.voted(ev)
	case ev.Kind == Logged && c.phase == committing:
		return c.logged(ev)
	case ev.Kind == Acked && c.phase == telling:
		delete(c.missing, ev.Group)
		if len(c.missing) == 0 {
			c.phase = ending
			return []Action{{Kind: AppendEnd}}
		}
	case ev.Kind == Ended && c.phase == ending:
		c.phase = done
	}
	return nil
}

// Done reports whether nothing is left to do.
func (c *Coordinator) Done() bool { return c.phase == done }

// Undecided reports whether the transaction may still go either way.
func (c *Coordinator) Undecided() bool { return c.phase <= committing }

func (c *Coordinator) begin() []Action {
	if len(c.others) == 0 {
		c.phase = committing
		return []Action{{Kind: AppendCommit}}
	}
	c.phase = preparing
	var as []Action
	for _, g := range c.others {
		c.prepared[g] = true
		as = append(as, Action{Kind: SendPrepare, Group: g})
	}
	return as
}

func (c *Coordinator) voted(ev Event) []Action {
	if !c.missing[ev.Group] {
		return nil
	}
	delete(c.missing, ev.Group)
	if ev.Err != nil {
		if c.err == nil {
			c.err = ev.Err
		}
		// Only a definite refusal means that nothing is prepared there; otherwise the answer may have been lost.
		if objcache.KindOf(ev.Err) != objcache.Unavailable && objcache.KindOf(ev.Err) != objcache.Interrupted {
			delete(c.prepared, ev.Group)
		}
	}
	if len(c.missing) > 0 {
		return nil // wait for all, so that an abort reaches everyone who prepared
	}
	if c.err != nil {
		return c.abort()
	}
	c.phase = committing
	return []Action{{Kind: AppendCommit}}
}

func (c *Coordinator) abort() []Action {
	c.phase = done
	as := []Action{{Kind: Reply, Err: c.err}}
	for _, g := range c.others {
		if c.prepared[g] {
			as = append(as, Action{Kind: SendAbort, Group: g})
		}
	}
	return as
}

func (c *Coordinator) logged(ev Event) []Action {
	if ev.Err != nil {
		// The append may or may not be in the log: participants ask, and the log decides. Telling them anything would be a guess.
		c.phase, c.err = done, ev.Err
		return []Action{{Kind: Reply, Err: ev.Err}}
	}
	return append([]Action{{Kind: Reply}}, c.tell()...)
}

func (c *Coordinator) tell() []Action {
	if len(c.others) == 0 {
		c.phase = done
		return nil
	}
	c.phase = telling
	var as []Action
	for _, g := range c.others {
		c.missing[g] = true
		as = append(as, Action{Kind: SendCommit, Group: g})
	}
	return as
}
