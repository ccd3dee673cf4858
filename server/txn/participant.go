package txn

type promise uint8

const (
	idle        promise = iota
	promising           // locking, evaluating, appending PREPARE
	promised            // PREPARE is in the log
	unsure              // the append of PREPARE may have failed; the log may hold it
	applying            // the news of the decision is being appended, from promised
	withdrawing         // the same, from unsure
	over
)

// Participant is a participant's half of one transaction. It is a value without pointers. Invariant: yes is said only while PREPARE is in the log and
// no decision is; a decision never overtakes the promise in the log; who has said yes releases only after a decision is in the log.
type Participant struct{ phase promise }

// Step takes one event and returns what to do. passed says of Arrived that the Prepare comes too late (Bar.Refuses, or it has been decided here).
func (p *Participant) Step(ev Event, passed bool) Actions {
	switch ev.Kind {
	case Arrived:
		return p.arrived(passed)
	case Logged:
		return p.logged(ev.Outcome)
	case Commit, Abort:
		return p.decided(ev.Kind == Commit)
	case Doubtful:
		if p.phase == promised || p.phase == unsure {
			return do(AskCoordinator)
		}
	case Restarted:
		p.phase = promised
	}
	return Actions{}
}

// InDoubt reports whether only the coordinator can say how it ends.
func (p *Participant) InDoubt() bool { return p.phase == promised || p.phase == unsure }

// Over reports whether the transaction has ended here, or never began.
func (p *Participant) Over() bool { return p.phase == over || p.phase == idle }

func (p *Participant) arrived(passed bool) Actions {
	switch {
	case p.phase == idle && passed:
		p.phase = over
		return do(Refuse)
	case p.phase == idle:
		p.phase = promising
		return do(Promise)
	case p.phase == promised:
		return do(VoteYes) // sent again: its answer was lost
	}
	return do(VoteUnknown)
}

func (p *Participant) logged(o Outcome) Actions {
	switch p.phase {
	case promising:
		return p.appended(o)
	case applying, withdrawing:
		if o == OK {
			p.phase = over
			return do(Release, Acknowledge)
		}
		p.phase -= applying - promised // as before; whoever decided says it again
		return do(NotYet)
	}
	return Actions{}
}

func (p *Participant) appended(o Outcome) Actions {
	switch o {
	case OK:
		p.phase = promised
		return do(VoteYes)
	case No:
		p.phase = over
		return do(Release, VoteNo)
	}
	// The locks stay: the log may hold the promise. The coordinator does not commit without a yes, so that asking it ends as an abort.
	p.phase = unsure
	return do(VoteUnknown)
}

func (p *Participant) decided(commit bool) Actions {
	switch {
	case p.phase == idle || p.phase == over:
		return do(Acknowledge) // decided before, or never promised
	case p.phase == promised:
		p.phase = applying
	case p.phase == unsure && !commit:
		p.phase = withdrawing
	default:
		return do(NotYet)
	}
	if commit {
		return do(ApplyCommit)
	}
	return do(ApplyAbort)
}
