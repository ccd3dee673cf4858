package transfer

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/failpoint"
	"github.com/objcache/objcache/server/external"
	"github.com/objcache/objcache/server/record"
	"github.com/objcache/objcache/server/txn"
)

// attempt carries out what txn.Upload says, for one intent.
type attempt struct {
	t     *Transfer
	in    *record.Inode
	it    *record.Intent
	store external.Store

	etag  string // of the object, when it stands
	parts []external.Part
	other external.Object // what stands there instead
	cause error           // the refusal
	gone  bool            // nobody wants the object any more
}

func (a *attempt) run(ctx context.Context) error {
	u, next := txn.NewUpload(a.facts())
	var err error
	for {
		var o txn.UploadOutcome
		switch next {
		case txn.End:
			return nil
		case txn.DropThenStop:
			return errors.Join(err, a.store.AbortUpload(context.WithoutCancel(ctx), a.it.GetKey(), a.it.GetUploadId()))
		case txn.Stop:
			if err == nil {
				err = objcache.Errorf(objcache.Conflict, "tried again over the object that stands under %q: %v", a.it.GetKey(), a.cause)
			}
			return err
		}
		if o, err = a.carryOut(ctx, next); err != nil {
			o = txn.OutcomeLost
		}
		next = u.Step(o)
	}
}

func (a *attempt) facts() txn.UploadFacts {
	in, it, base := a.in, a.it, a.in.GetBase()
	named := slices.ContainsFunc(in.GetLinks(), func(l *record.Link) bool { return l.GetDir() == it.GetDir() && l.GetName() == it.GetName() })
	// Or truncated before a restart: the base has lost bytes of that version. Or bytes of it were lost with a disk.
	a.gone = !named || it.GetLowestCut() > 0 || in.GetLost() != "" || a.t.persist.unpinnable(it)
	f := txn.UploadFacts{
		Done:      base.GetTx() == txString(it.GetTx()),
		Begun:     it.GetUploadId() != "",
		Gone:      a.gone,
		Parts:     it.GetSize() > objcache.ChunkSize,
		Copy:      base.GetKey() != "" && base.GetVersion() == it.GetVersion() && base.GetLength() == it.GetSize() && base.GetSize() == it.GetSize() && it.GetSize() <= maxCopy,
		Overwrite: a.t.cfg.Overwrite,
	}
	if f.Done { // known already, but not to all of its chunks
		a.etag = base.GetEtag()
		return f
	}
	f.Fresh = a.t.persist.isFresh(it)
	can := a.store.Capabilities()
	f.Unconditional = it.GetStarted() < a.t.persist.started && (f.Copy || f.Parts && !can.ConditionalComplete || !f.Parts && !can.ConditionalPut)
	return f
}

// carryOut does one thing. An error means that it may have happened, or may still.
func (a *attempt) carryOut(ctx context.Context, what txn.UploadAction) (txn.UploadOutcome, error) {
	t, in, it := a.t, a.in, a.it
	switch what {
	case txn.AwaitRequests:
		return txn.Did, t.persist.quiet(t.now())
	case txn.LookFirst, txn.LookAgain:
		return a.look(ctx)
	case txn.AbortBegun:
		return txn.Did, aborted(a.store.AbortUpload(ctx, it.GetKey(), it.GetUploadId()))
	case txn.Sweep:
		return txn.Did, a.sweep(ctx)
	case txn.SendCopy:
		return a.copy(ctx)
	case txn.SendPut:
		etag, err := t.putWhole(ctx, a.store, in)
		return a.sent(etag, t.pinAgain(ctx, in, err))
	case txn.Create:
		id, err := a.store.CreateUpload(ctx, it.GetKey(), metadata(in, it))
		it.UploadId = id
		return txn.Did, err
	case txn.LogBegin, txn.LogTarget:
		failpoint.Hit(failpoint.BeginBefore)
		err := a.logIntent(ctx)
		failpoint.Hit(failpoint.BeginLogged)
		return txn.Did, err
	case txn.SendParts:
		var err error
		a.parts, err = t.sendParts(ctx, in)
		failpoint.Hit(failpoint.PartsSent)
		return txn.Did, t.pinAgain(ctx, in, err)
	case txn.Complete:
		etag, err := a.store.CompleteUpload(ctx, it.GetKey(), it.GetUploadId(), a.parts, condition(a.store, it, true))
		return a.sent(etag, err)
	case txn.KeepBoth:
		return txn.Did, a.keepBoth(ctx)
	case txn.LogDone:
		return txn.Did, t.written(ctx, in, a.etag)
	}
	return txn.Did, t.giveUp(ctx, in) // LogGivenUp
}

// aborted is nil for an upload that external storage does not know any more.
func aborted(err error) error {
	if errors.Is(err, objcache.NoUpload) {
		return nil
	}
	return err
}

// look asks what stands under the key, and who wrote it.
func (a *attempt) look(ctx context.Context) (txn.UploadOutcome, error) {
	o, err := a.store.Head(ctx, a.it.GetKey())
	switch {
	case err != nil && objcache.KindOf(err) == objcache.NotExist:
		a.it.IfMatch, a.other = condIf(a.cause != nil, "", a.it.GetIfMatch()), external.Object{}
		return txn.Absent, nil
	case err != nil:
		return txn.OutcomeLost, err
	case o.Meta[metaTx] == txString(a.it.GetTx()) && o.Size != a.it.GetSize():
		return a.brokenOff(ctx, o.ETag)
	case o.Meta[metaTx] == txString(a.it.GetTx()):
		a.etag = o.ETag
		return txn.Ours, nil
	}
	a.other = o
	a.it.IfMatch = condIf(a.cause != nil, o.ETag, a.it.GetIfMatch())
	return txn.Other, nil
}

// brokenOff answers for an object of ours that is not whole: the Put broke off with its sender, and the store took what had arrived for all (versitygw
// does). It is written again, over that; what nobody wants any more is deleted, under the claim that the intent has.
func (a *attempt) brokenOff(ctx context.Context, etag string) (txn.UploadOutcome, error) {
	a.it.IfMatch, a.other = etag, external.Object{}
	if !a.gone {
		return txn.Absent, nil
	}
	if err := a.store.Delete(ctx, a.it.GetKey()); err != nil {
		return txn.OutcomeLost, err
	}
	return txn.Absent, nil
}

func condIf(c bool, yes, no string) string {
	if c {
		return yes
	}
	return no
}

// sent tells a refused condition from a request that may have taken effect.
func (a *attempt) sent(etag string, err error) (txn.UploadOutcome, error) {
	// A key that is gone is a failed If-Match too; some stores say 404 (AWS, versitygw), others 412 (Ceph).
	if errors.Is(err, objcache.Precondition) || errors.Is(err, objcache.NotExist) && a.it.GetIfMatch() != "" {
		a.cause = err
		return txn.Refused, nil
	}
	a.etag = etag
	return txn.Did, err
}

func (a *attempt) copy(ctx context.Context) (txn.UploadOutcome, error) {
	base := a.in.GetBase()
	etag, err := a.store.Copy(ctx, a.it.GetKey(), base.GetKey(), base.GetEtag(), metadata(a.in, a.it), external.Condition{})
	if errors.Is(err, objcache.NotSupported) || baseGone(err) {
		return txn.Unsuitable, nil
	}
	a.etag = etag
	return txn.Did, err
}

// logIntent logs the intent again, with what has become known: BEGIN, or another condition.
func (a *attempt) logIntent(ctx context.Context) error {
	v, err := encode(a.it)
	if err != nil {
		return err
	}
	return a.t.transact(ctx, &rpc.Step{Step: &rpc.Step_BeginPersist{BeginPersist: &rpc.BeginPersist{
		Ino: a.in.GetIno(), Version: a.it.GetVersion(), Intent: v,
	}}})
}

// keepBoth copies what another client put there aside.
func (a *attempt) keepBoth(ctx context.Context) error {
	keep := a.it.GetKey() + conflictMark + a.t.cfg.Node + "-" + strconv.FormatInt(a.t.now().Unix(), 10)
	if _, err := a.store.Copy(ctx, keep, a.it.GetKey(), a.other.ETag, nil, external.Condition{}); err != nil {
		return err
	}
	a.t.cfg.Logger.Warn("an object changed in external storage under a dirty file: kept both", "key", a.it.GetKey(), "other", keep, "error", a.cause)
	return nil
}

// sweep aborts uploads of exactly this key that we began after the intent and whose ids no log has. Who we are is told by an upload made for that, if
// the store tells it at all.
func (a *attempt) sweep(ctx context.Context) error {
	own, err := a.store.CreateUpload(ctx, a.it.GetKey(), nil)
	if err != nil {
		return err
	}
	ups, err := a.store.ListUploads(ctx, a.it.GetKey())
	if err != nil {
		return errors.Join(err, a.store.AbortUpload(context.WithoutCancel(ctx), a.it.GetKey(), own))
	}
	we := ""
	for _, u := range ups {
		if u.ID == own {
			we = u.Initiator
		}
	}
	since := time.Unix(0, a.it.GetStarted()).Truncate(time.Second) // external storage counts in seconds
	for _, u := range ups {
		if u.ID == own || u.Initiator != we || u.Initiated.Before(since) {
			continue
		}
		err = errors.Join(err, aborted(a.store.AbortUpload(ctx, u.Key, u.ID)))
	}
	return errors.Join(err, aborted(a.store.AbortUpload(ctx, a.it.GetKey(), own)))
}

// requestsEnd is how long a request that changes something may be on its way, its repetitions included (external.RetryConfig).
const requestsEnd = 30 * time.Second

// claimKey names the claim for the delete of an object.
func claimKey(in *record.Inode, b *record.Base) string {
	return strconv.FormatUint(in.GetIno(), 10) + " " + strconv.FormatUint(b.GetDir(), 10) + " " + b.GetName()
}

// claim notes that a delete has begun in this life.
func (p *persisting) claim(in *record.Inode, b *record.Base) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.quiet(time.Now()) == nil {
		clear(p.mu.claims) // nobody asks any more
		return
	}
	p.mu.claims[claimKey(in, b)] = true
}

// claimedHere reports whether a delete that was begun is of this life. Nothing is forgotten before no other life's can be on its way any more.
func (p *persisting) claimedHere(in *record.Inode, b *record.Base) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.claims[claimKey(in, b)]
}

// quiet is nil when no request of an earlier life of this process can be on its way any more. Those of this life end within the call that sends them.
func (p *persisting) quiet(now time.Time) error {
	if over := time.Unix(0, p.started).Add(requestsEnd); now.Before(over) {
		return objcache.Errorf(objcache.Conflict, "a request of before the restart may be on its way until %v", over)
	}
	return nil
}
