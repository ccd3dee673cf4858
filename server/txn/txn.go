// Package txn is two-phase commit with presumed abort, and the upload of one version of one object, as step machines:
// (state, event) -> (state, actions). It promises that a coordinator commits only after every participant said yes and decides once, that a
// participant promises a transaction at most once, and that an upload ends only when its object stands. It has no clock, does no I/O and starts no
// goroutine: the group and the transfer carry the actions out and report what happened as the next events. DESIGN.md says what was searched.
package txn

// Outcome is how an attempt went.
type Outcome uint8

// The outcomes.
const (
	OK      Outcome = iota // a vote: yes; an append: in the log and applied
	No                     // a vote: nothing is promised there; an append: not in the log and never will be
	Unknown                // the answer was lost, or never came: either may be true
)

// Event is what happened to a transaction at one group.
type Event struct {
	Kind    EventKind
	From    int     // Voted, Acked: which participant, by its place in the coordinator's list
	Outcome Outcome // Voted, Logged
}

// EventKind is one of the events.
type EventKind uint8

// The events of a coordinator.
const (
	Begin  EventKind = iota // own steps are evaluated under their locks
	Voted                   // a Prepare was answered, or the wait for the answer given up
	Logged                  // the append of COMMIT returned; of a participant: that of PREPARE, COMMIT or ABORT
	Acked                   // a participant has applied the decision
	Ended                   // the append of END returned
)

// The other events of a participant.
const (
	Arrived   EventKind = iota + 16 // a Prepare
	Commit                          // the coordinator said commit, or answered so
	Abort                           // the coordinator said abort, or answered that it has no record
	Doubtful                        // nothing was heard for a while
	Restarted                       // the group has started, its log holds a promise
)

// Action is what the group must do next.
type Action struct {
	Kind ActionKind
	To   Set // SendPrepare, SendCommit, SendAbort
}

// ActionKind is one of the actions.
type ActionKind uint8

// The actions of a coordinator.
const (
	Nothing ActionKind = iota
	SendPrepare
	AppendCommit
	SendCommit // until each has acknowledged
	SendAbort  // best effort
	Reply      // to the client: committed. The locks are released with it
	ReplyError // to the client: the error of participant Cause, or of the append
	AppendEnd
)

// The actions of a participant.
const (
	Promise     ActionKind = iota + 16 // lock, evaluate, append PREPARE: Logged tells how that went
	VoteYes                            // answer the Prepare
	VoteNo                             // with the error at hand
	VoteUnknown                        // the coordinator must not count it as either
	Refuse                             // the transaction is over, or must not begin any more
	ApplyCommit                        // append the news of the decision
	ApplyAbort                         // the same
	Acknowledge                        // answer the decision: applied here
	NotYet                             // answer the decision: say it again later
	Release                            // the locks; the transaction is over here
	AskCoordinator
)

// Actions are carried out in this order; Nothing is skipped.
type Actions [2]Action

func do(kinds ...ActionKind) (as Actions) {
	for i, k := range kinds {
		as[i].Kind = k
	}
	return as
}
