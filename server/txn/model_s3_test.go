package txn

// persist is the upload of one inode's versions by group 0, its rows, and S3. A version stands for its bytes, its objcache-tx and its ETag alike.
type persist struct {
	version, base         uint8 // rows: the inode's version, and the one that DONE says is in S3
	intent, target, begun uint8 // rows: INTENT's version, the condition of its write, BEGIN's upload id
	// the machine and what its driver knows; lost in a crash
	active, last, orphans, stands, began, created, seen uint8
	// S3
	object  uint8
	uploads [9]uint8 // by id: the version it is of; 0: not open
	next    uint8
	strays  [2]request // sent, given up, may land at any time
	foreign uint8      // a foreign write has happened
	intents uint8      // how many there were
}

const foreignObject = 15

type request struct{ kind, version, target, id uint8 }

func (u *persist) machine(w *world) Upload {
	return Upload{last: UploadAction(u.last), facts: UploadFacts{Parts: w.parts, Begun: u.began != 0}, orphans: u.orphans != 0, stands: u.stands != 0}
}

func (u *persist) keep(m *Upload) {
	bit := func(b bool) uint8 {
		if b {
			return 1
		}
		return 0
	}
	u.active, u.last, u.orphans, u.stands, u.began = 1, uint8(m.last), bit(m.orphans), bit(m.stands), bit(m.facts.Begun)
	if m.last == Stop || m.last == End {
		u.forget()
	}
}

func (u *persist) forget() {
	u.active, u.last, u.orphans, u.stands, u.began, u.created, u.seen = 0, 0, 0, 0, 0, 0, 0
}

// start begins an upload, or goes on from the rows.
func (u *persist) start(w *world, fresh bool) {
	m, _ := NewUpload(UploadFacts{Fresh: fresh, Parts: w.parts, Begun: u.begun != 0})
	u.keep(&m)
}

func (u *persist) step(w *world, o UploadOutcome) {
	m := u.machine(w)
	m.Step(o)
	u.keep(&m)
	if m.last == DropThenStop {
		u.uploads[u.created] = 0
		u.forget()
	}
}

// request is what the machine's action asks of S3; kind 0xff: nothing.
func (u *persist) request() request {
	r := request{kind: u.last, version: u.intent, target: u.target}
	switch UploadAction(u.last) {
	case Complete:
		r.id = u.created
	case AbortBegun:
		if r.id = u.begun; u.created != 0 {
			r.id = u.created
		}
	}
	return r
}

// serve is S3.
func (u *persist) serve(w *world, r request) UploadOutcome {
	switch UploadAction(r.kind) {
	case SendPut:
		if u.object != r.target && !w.broken.unconditional {
			return Refused
		}
		u.object = r.version
	case Complete:
		switch {
		case u.uploads[r.id] == 0:
			return OutcomeLost // NoUpload: Head decides
		case u.object != r.target && !w.broken.unconditional:
			return Refused
		}
		u.object, u.uploads[r.id] = u.uploads[r.id], 0
	case Create:
		u.next++
		u.uploads[u.next] = r.version
	case AbortBegun:
		u.uploads[r.id] = 0
	case Sweep:
		u.uploads = [9]uint8{}
	case LookFirst, LookAgain:
		switch u.object {
		case r.version:
			return Ours
		case 0:
			return Absent
		}
		return Other
	}
	return Did
}

// answered is what the driver notes of an answer.
func (u *persist) answered() {
	switch UploadAction(u.last) {
	case Create:
		u.created = u.next
	case LookAgain:
		u.seen = u.object
	}
}

// logged applies the entry that the machine's action appends.
func (u *persist) logged(w *world) {
	switch UploadAction(u.last) {
	case LogBegin:
		if !w.broken.forgetBegin {
			u.begun = u.created
		}
	case LogTarget:
		u.target = u.seen
	case LogDone:
		u.base, u.intent, u.target, u.begun = u.intent, 0, 0, 0
		if w.broken.doneOfNewest {
			u.base = u.version
		}
	}
}

func (u *persist) logs() bool {
	switch UploadAction(u.last) {
	case LogBegin, LogTarget, LogDone:
		return true
	}
	return false
}

// delayable: a request that changes the object, or fences one that does.
func (r request) delayable() bool {
	switch UploadAction(r.kind) {
	case SendPut, Complete, AbortBegun:
		return true
	}
	return false
}

// stray leaves a request on its way; false: there are enough of them.
func (u *persist) stray(r request) bool {
	for i := range u.strays {
		if u.strays[i] == (request{}) {
			u.strays[i] = r
			return true
		}
	}
	return false
}

// wrong says what is wrong with the object; empty: nothing.
func (u *persist) wrong() string {
	switch {
	case u.object == foreignObject && u.foreign != 0:
		return ""
	case u.intent == 0 && u.object != u.base:
		return "the object is not the version that DONE says"
	case u.object != u.base && u.object != u.intent:
		return "the object is a version that is neither DONE nor under way"
	case u.active != 0 && UploadAction(u.last) >= SendParts && UploadAction(u.last) <= Complete && u.begun != u.created:
		return "parts are sent whose upload is not in the log"
	}
	return ""
}
