package transfer

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/failpoint"
	"github.com/objcache/objcache/server/external"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
)

const (
	maxParts     = 10_000
	partsAtOnce  = 6
	maxCopy      = 5 << 30
	metaTx       = "objcache-tx"
	conflictMark = ".objcache-conflict-"
)

// persistLink writes the object of one name of a file, if it is not there yet: a copy when only the name is new, else the bytes.
func (t *Transfer) persistLink(ctx context.Context, ino objcache.Ino, dir uint64, name string) error {
	in, err := meta.Inode(t.cfg.Group.DB(), ino)
	if err != nil || in == nil {
		return err
	}
	i := slices.IndexFunc(in.GetLinks(), func(l *record.Link) bool { return l.GetDir() == dir && l.GetName() == name })
	if i < 0 {
		return nil // renamed or removed meanwhile
	}
	link := in.GetLinks()[i]
	p, err := t.place(ctx, dir, name, ino)
	if err != nil {
		return err
	}
	if slices.Contains(p.GetBlockedBy(), uint64(ino)) {
		return t.stepAside(ctx, ino)
	}
	if len(p.GetBlockedBy()) > 0 {
		return t.unblock(ctx, p.GetBlockedBy())
	}
	if link.GetKey() == p.GetPath() && link.GetVersion() == in.GetVersion() {
		if !in.GetAttrDirty() {
			return nil
		}
		if t.cfg.Prefix != "" {
			return t.settleAttributes(ctx, in)
		}
	}
	if len(p.GetPath()) > 1024 {
		return objcache.Errorf(objcache.NameTooLong, "key of %d bytes for %q", len(p.GetPath()), p.GetPath())
	}
	match, err := t.expected(ctx, in, link, p)
	if err != nil {
		return err
	}
	tx, err := t.cfg.Group.NewTx()
	if err != nil {
		return err
	}
	it := &record.Intent{
		Tx: recordTx(tx), Version: in.GetVersion(), Key: p.GetPath(), Dir: dir, Name: name,
		Started: t.now().UnixNano(), Size: in.GetSize(), IfMatch: match,
	}
	v, err := encode(it)
	if err != nil {
		return err
	}
	steps := []*rpc.Step{
		{Step: &rpc.Step_BeginPersist{BeginPersist: &rpc.BeginPersist{Ino: uint64(ino), Version: in.GetVersion(), Intent: v}}},
		{Step: &rpc.Step_ClaimEntry{ClaimEntry: &rpc.ClaimEntry{Dir: dir, Name: name, Ino: uint64(ino)}}},
	}
	var pins []*rpc.Step
	for c := range chunks(in) {
		pins = append(pins, &rpc.Step{Step: &rpc.Step_PinChunk{PinChunk: &rpc.PinChunk{Ino: uint64(ino), Chunk: c, Version: in.GetVersion()}}})
	}
	now := pins[:min(len(pins), stepsAtOnce)]
	failpoint.Hit(failpoint.IntentBefore)
	if err := t.transact(ctx, append(steps, now...)...); err != nil {
		return errors.Join(err, t.hurryDebtors(ctx, p, err))
	}
	failpoint.Hit(failpoint.IntentLogged)
	in.Intent = it
	if err := t.transactAll(ctx, pins[len(now):]); err != nil {
		if !errors.Is(err, objcache.Conflict) {
			return err
		}
		return errors.Join(err, t.giveUp(ctx, in)) // written to meanwhile: begun again at the new version
	}
	if err := t.stillStandsAt(ctx, in); err != nil {
		return err
	}
	return t.finish(ctx, in)
}

// hurryDebtors asks who owes for a name to persist, if the intent was refused: one of them may have the claim, for a delete that failed and that nobody
// would try again before its file is due. What was removed is always due, and must not step aside for this.
func (t *Transfer) hurryDebtors(ctx context.Context, p *rpc.PathReply, refused error) error {
	if !errors.Is(refused, objcache.Conflict) {
		return nil
	}
	for _, d := range p.GetDebtors() {
		in, err := t.inspect(ctx, d)
		if err == nil && in != nil && !in.GetDead() && !in.GetOrphan() {
			err = t.persistElsewhere(ctx, d)
		}
		if err != nil && !errors.Is(err, objcache.Conflict) {
			return err
		}
	}
	return nil
}

// stillStandsAt gives an intent up if its name's path has changed before it was logged: a directory above may have arrived elsewhere without knowing of
// this upload. From now on it is known, and whoever moves the directory waits for its end.
func (t *Transfer) stillStandsAt(ctx context.Context, in *record.Inode) error {
	it := in.GetIntent()
	p, err := t.place(ctx, it.GetDir(), it.GetName(), objcache.Ino(in.GetIno()))
	if err != nil || p.GetPath() == it.GetKey() && len(p.GetBlockedBy()) == 0 {
		return err
	}
	moved := objcache.Errorf(objcache.Conflict, "a directory above %q has moved", it.GetKey())
	return errors.Join(moved, t.giveUp(ctx, in))
}

// stepsAtOnce is how many chunks one transaction pins or unpins: their extents must fit one log entry.
const stepsAtOnce = 512

// transactAll runs many steps as transactions of a size that every log takes, one after the other.
func (t *Transfer) transactAll(ctx context.Context, steps []*rpc.Step) error {
	for len(steps) > 0 {
		n := min(len(steps), stepsAtOnce)
		if err := t.insist(ctx, steps[:n]...); err != nil {
			return err
		}
		steps = steps[n:]
	}
	return nil
}

// insist is transact that runs again when another transaction was in the way, some times.
func (t *Transfer) insist(ctx context.Context, steps ...*rpc.Step) error {
	return t.insistOn(ctx, func() ([]*rpc.Step, error) { return steps, nil })
}

// insistOn is insist with steps that depend on the rows.
func (t *Transfer) insistOn(ctx context.Context, steps func() ([]*rpc.Step, error)) error {
	wait := time.Millisecond
	for tries := 12; ; tries-- { // four seconds
		now, err := steps()
		if err != nil {
			return err
		}
		if err = t.transact(ctx, now...); tries == 0 || !errors.Is(err, objcache.Conflict) {
			return err
		}
		if err := pause(ctx, wait/2+rand.N(wait)); err != nil {
			return err
		}
		wait *= 2
	}
}

func recordTx(x objcache.TxID) *record.TxID {
	return &record.TxID{Client: uint64(x.Client), Seq: uint64(x.Seq), TxSeq: x.TxSeq}
}

func txString(x *record.TxID) string {
	return objcache.TxID{Client: objcache.ClientID(x.GetClient()), Seq: objcache.SeqNum(x.GetSeq()), TxSeq: x.GetTxSeq()}.String()
}

// chunks is the number of chunks of a regular file.
func chunks(in *record.Inode) uint32 {
	if in.GetMode()&objcache.ModeMask != objcache.ModeRegular || in.GetSize() == 0 {
		return 0
	}
	return objcache.ChunkOf(in.GetSize()-1) + 1
}

// unblock gets directories out of the way that had a part of this path before.
func (t *Transfer) unblock(ctx context.Context, dirs []uint64) error {
	for _, d := range dirs {
		if err := t.persistElsewhere(ctx, d); err != nil && !errors.Is(err, objcache.Conflict) {
			return err
		}
	}
	return &waiting{inos: dirs, blocked: true}
}

// finish carries an intent to its end, from wherever a crash or a lost reply left it, as txn.Upload says.
func (t *Transfer) finish(ctx context.Context, in *record.Inode) error {
	store, err := t.store(in.GetBucket())
	if err != nil {
		return err
	}
	a := &attempt{t: t, in: in, it: in.GetIntent(), store: store}
	return a.run(ctx)
}

// isFresh is true once for an intent whose upload this process has not begun and no earlier process can have.
func (p *persisting) isFresh(it *record.Intent) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := txString(it.GetTx())
	if p.begun == nil {
		p.begun = map[string]bool{}
	}
	fresh := it.GetStarted() >= p.started && !p.begun[k]
	p.begun[k] = true
	if len(p.begun) > 1<<16 {
		clear(p.begun)
		p.started = it.GetStarted() + 1
	}
	return fresh
}

// giveUp ends an intent that nobody wants any more and of which no request can land: what was written before is deleted with the name's debt.
func (t *Transfer) giveUp(ctx context.Context, in *record.Inode) error {
	it := in.GetIntent()
	if err := t.transactAll(ctx, unpin(in, it, false, "")); err != nil {
		return err
	}
	return t.insistOn(ctx, func() ([]*rpc.Step, error) {
		now, err := meta.Inode(t.cfg.Group.DB(), objcache.Ino(in.GetIno())) // in is as of before the intent: it may have lost the name since
		return giveUpSteps(now, in.GetIno(), it), err
	})
}

// giveUpSteps end an intent. The name's debt is settled only if the inode has nothing to delete under the name, when the steps are evaluated too.
func giveUpSteps(now *record.Inode, ino uint64, it *record.Intent) []*rpc.Step {
	name := &rpc.Name{Dir: it.GetDir(), Name: it.GetName()}
	end := &rpc.EndPersist{Ino: ino, Version: it.GetVersion()}
	settle := &rpc.SettleEntry{Dir: it.GetDir(), Name: it.GetName(), Ino: ino}
	if b := trashOf(now, it); b != nil {
		settle.Key, settle.Etag = b.GetKey(), b.GetEtag()
	} else {
		settle.Gone, end.TrashName, end.TrashLast = true, name, true
	}
	return []*rpc.Step{{Step: &rpc.Step_EndPersist{EndPersist: end}}, {Step: &rpc.Step_SettleEntry{SettleEntry: settle}}}
}

// trashOf is an older object of the intent's name that still has to be deleted, which will settle the debt; nil if there is none.
func trashOf(in *record.Inode, it *record.Intent) *record.Base {
	for _, b := range in.GetTrash() {
		if b.GetDir() == it.GetDir() && b.GetName() == it.GetName() {
			return b
		}
	}
	return nil
}

func unpin(in *record.Inode, it *record.Intent, done bool, etag string) []*rpc.Step {
	var steps []*rpc.Step
	if in.GetMode()&objcache.ModeMask != objcache.ModeRegular || it.GetSize() == 0 {
		return nil
	}
	for c := uint32(0); c <= objcache.ChunkOf(it.GetSize()-1); c++ {
		k := objcache.ChunkKey{Index: c}
		steps = append(steps, &rpc.Step{Step: &rpc.Step_UnpinChunk{UnpinChunk: &rpc.UnpinChunk{
			Ino: in.GetIno(), Chunk: c, Version: it.GetVersion(), Done: done, Etag: etag, Len: min(objcache.ChunkSize, it.GetSize()-k.Offset()),
		}}})
	}
	return steps
}

// written commits what external storage now holds (DONE).
func (t *Transfer) written(ctx context.Context, in *record.Inode, etag string) error {
	it := in.GetIntent()
	size := it.GetSize()
	link, err := encode(&record.Link{Dir: it.GetDir(), Name: it.GetName(), Key: it.GetKey(), Etag: etag, Version: it.GetVersion()})
	if err != nil {
		return err
	}
	base, err := encode(&record.Base{
		Key: it.GetKey(), Etag: etag, Size: size, Length: size, Tx: txString(it.GetTx()), Dir: it.GetDir(), Name: it.GetName(), Version: it.GetVersion(),
	})
	if err != nil {
		return err
	}
	settle := &rpc.Step{Step: &rpc.Step_SettleEntry{SettleEntry: &rpc.SettleEntry{
		Dir: it.GetDir(), Name: it.GetName(), Ino: in.GetIno(), Etag: etag, Size: size, Key: it.GetKey(),
	}}}
	done := &rpc.EndPersist{Ino: in.GetIno(), Done: true, Link: link, Base: base, Version: it.GetVersion()}
	unpins := unpin(in, it, true, etag)
	failpoint.Hit(failpoint.DoneBefore)
	defer failpoint.Hit(failpoint.DoneLogged)
	first := []*rpc.Step{{Step: &rpc.Step_EndPersist{EndPersist: done}}, settle}
	if len(unpins) <= stepsAtOnce {
		return t.insist(ctx, append(first, unpins...)...)
	}
	// The new base must be known before a chunk drops its bytes, and the intent stays until all have: a crash in between begins here again.
	done.More = true
	if err := t.insist(ctx, first...); err != nil {
		return err
	}
	if err := t.transactAll(ctx, unpins); err != nil {
		return err
	}
	return t.insist(ctx, &rpc.Step{Step: &rpc.Step_EndPersist{EndPersist: &rpc.EndPersist{Ino: in.GetIno(), Version: it.GetVersion()}}})
}

func condition(store external.Store, it *record.Intent, multipart bool) external.Condition {
	c := store.Capabilities()
	if multipart && !c.ConditionalComplete || !multipart && !c.ConditionalPut {
		return external.Condition{}
	}
	if it.GetIfMatch() == "" {
		return external.Condition{IfNone: true}
	}
	return external.Condition{IfMatch: it.GetIfMatch()}
}

func (t *Transfer) putWhole(ctx context.Context, store external.Store, in *record.Inode) (string, error) {
	it := in.GetIntent()
	body := []byte(in.GetTarget())
	if in.GetMode()&objcache.ModeMask == objcache.ModeRegular {
		body = make([]byte, it.GetSize())
		k := objcache.ChunkKey{Ino: objcache.Ino(in.GetIno())}
		if err := t.readPinned(ctx, k, in.GetBucket(), in.GetBase(), it.GetVersion(), 0, body); err != nil {
			return "", err
		}
	}
	return store.Put(ctx, it.GetKey(), bytes.NewReader(body), metadata(in, it), condition(store, it, false))
}

func (t *Transfer) readPinned(ctx context.Context, k objcache.ChunkKey, bucket string, base *record.Base, version uint64, off int64, p []byte) error {
	if len(p) == 0 {
		return nil
	}
	gaps, err := t.cfg.Group.ReadPinned(ctx, k, version, off, p)
	if err != nil || len(gaps) == 0 {
		return err
	}
	return t.readBase(ctx, k, bucket, base, off, p, gaps)
}
