package txn

// UploadFacts are what is known when an upload begins or goes on from its INTENT.
type UploadFacts struct {
	Fresh         bool // nobody has sent a request for this intent yet
	Done          bool // the new base is in the log already, but not all chunks know it
	Begun         bool // an upload id is in the log (BEGIN)
	Gone          bool // the name is gone, or bytes of the version are: nobody wants the object any more
	Parts         bool // more than one chunk: a multipart upload
	Copy          bool // the bytes stand under another key of ours
	Unconditional bool // a Put or Copy of an earlier life may have been sent without a condition
	Overwrite     bool // a foreign object is overwritten, not kept beside
}

// UploadAction is what the transfer must do next.
type UploadAction uint8

// UploadOutcome is how that went.
type UploadOutcome uint8

// The actions. All but the last three are followed by a Step with their outcome.
const (
	AwaitRequests UploadAction = iota // until no request of an earlier attempt can be on its way any more
	LookFirst                         // HEAD: Done (objcache-tx is ours), No (another object or none)
	LookAgain                         // HEAD after a refused condition: Done, Absent, No (a foreign object)
	AbortBegun                        // the upload whose id is in the log
	Sweep                             // abort uploads of exactly this key, initiated by us, after the INTENT
	SendCopy                          // Unsuitable: send the bytes instead
	SendPut                           // conditional; Refused: the condition does not hold
	Create                            // a multipart upload
	LogBegin                          // its id
	SendParts
	Complete     // conditional, as SendPut
	KeepBoth     // copy the foreign object aside
	LogTarget    // the condition of the next attempt: over what stands there now
	LogDone      // commit: the object is the version's
	LogGivenUp   // the intent ends without an object
	DropThenStop // AbortBegun, best effort; then as Stop
	Stop         // with the error at hand: begun again later from the INTENT
	End          // the intent has ended
)

// The outcomes.
const (
	Did         UploadOutcome = iota
	Ours                      // of a Look
	Other                     // of a Look: another object
	Absent                    // of a Look: none, or a part of ours that broke off
	Unsuitable                // of SendCopy: it did not happen and will not
	Refused                   // of SendPut, Complete: the condition did not hold
	OutcomeLost               // it may have happened, or may still
)

// Upload carries one INTENT to its end with external storage as the participant: HeadObject's objcache-tx is its log. It is a value without pointers.
// Invariants: no part is sent before its upload's id is in the log; DONE is logged only when the object stands; the intent ends only when no request of
// an earlier attempt can land any more that its condition would not refuse. One action is under way at a time; a crash anywhere is NewUpload again.
type Upload struct {
	last    UploadAction
	facts   UploadFacts
	orphans bool // an upload may have been created whose id is not in the log
	stands  bool // the object is ours
}

// NewUpload returns the machine and its first action.
func NewUpload(f UploadFacts) (Upload, UploadAction) {
	u := Upload{facts: f, orphans: f.Parts && !f.Fresh}
	switch {
	case f.Done:
		return u.next(LogDone)
	case f.Fresh:
		return u.next(u.write())
	case f.Gone || f.Unconditional:
		return u.next(AwaitRequests)
	}
	return u.next(LookFirst)
}

func (u Upload) next(a UploadAction) (Upload, UploadAction) {
	u.last = a
	return u, a
}

// Step takes the outcome of the last action and returns the next one.
func (u *Upload) Step(o UploadOutcome) UploadAction {
	u.last = u.after(o)
	return u.last
}

func (u *Upload) after(o UploadOutcome) UploadAction {
	if o == OutcomeLost {
		return u.lost()
	}
	switch u.last {
	case AwaitRequests:
		return LookFirst
	case LookFirst:
		u.stands = o == Ours
		return u.write()
	case LookAgain:
		return u.refused(o)
	case SendCopy, SendPut, Complete:
		return u.sent(o)
	case AbortBegun:
		u.facts.Begun = false
		return u.write()
	case Sweep:
		u.orphans = false
		return u.write()
	case Create:
		u.facts.Begun = true
		return LogBegin
	case LogBegin:
		return SendParts
	case SendParts:
		return Complete
	case KeepBoth:
		return LogTarget
	case LogDone, LogGivenUp:
		return End
	}
	return Stop // LogTarget: the next attempt looks first
}

// write is what stands between here and the request that makes the object, or DONE. What an earlier attempt began is fenced first.
func (u *Upload) write() UploadAction {
	switch {
	case u.facts.Begun:
		return AbortBegun
	case u.orphans:
		return Sweep
	case u.stands:
		return LogDone
	case u.facts.Gone:
		return LogGivenUp
	case u.facts.Copy:
		return SendCopy
	case u.facts.Parts:
		return Create
	}
	return SendPut
}

func (u *Upload) sent(o UploadOutcome) UploadAction {
	switch o {
	case Did:
		u.stands, u.facts.Begun = true, false
		return u.write()
	case Unsuitable:
		u.facts.Copy = false
		return u.write()
	}
	return LookAgain
}

// refused: the object is not the one we knew. It is ours after all (a lost reply), or another client's, or gone.
func (u *Upload) refused(o UploadOutcome) UploadAction {
	switch {
	case o == Ours:
		u.stands = true
		return u.write()
	case o == Other && !u.facts.Overwrite:
		return KeepBoth
	}
	return LogTarget
}

// lost ends this attempt: whether the last action happened is asked at the next.
func (u *Upload) lost() UploadAction {
	if u.last == LogBegin || u.last == SendParts {
		return DropThenStop
	}
	return Stop
}
