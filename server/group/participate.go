package group

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/failpoint"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
	"github.com/objcache/objcache/server/txn"
)

// prepared is a transaction that another group coordinates, from its Prepare to its end here. The machine is guarded by Group.mu.
type prepared struct {
	machine     txn.Participant
	held        *txn.Held // nil until the locks are taken
	coordinator objcache.GroupID
	incarnation string
	since       time.Time
	steps       []*rpc.Step // nil after a restart
}

// Prepare is a participant's first half: check, lock, promise. The promise is in the log before the answer is yes.
func (g *Group) Prepare(ctx context.Context, r *rpc.PrepareRequest) (*rpc.PrepareReply, error) {
	return &rpc.PrepareReply{Failure: rpc.FailureOf(g.prepare(ctx, r))}, nil
}

func (g *Group) prepare(ctx context.Context, r *rpc.PrepareRequest) error {
	id := objcache.TxID{Client: objcache.ClientID(r.GetClient()), Seq: objcache.SeqNum(r.GetSeq()), TxSeq: r.GetTxSeq()}
	b := g.basis()
	if v := (objcache.ViewVersion{Epoch: r.GetViewEpoch(), Version: r.GetViewVersion()}); v != b.view.Version {
		return objcache.Errorf(objcache.NotOwner, "prepared under view %v, this group has %v", v, b.view.Version)
	}
	for _, s := range r.GetSteps() {
		if o := meta.Owner(b.view, s); o != g.id {
			return objcache.Errorf(objcache.NotOwner, "step of group %d at group %d", o, g.id)
		}
	}
	p, as, err := g.arrived(id, r)
	if err != nil {
		return err
	}
	if as[0].Kind == txn.Promise {
		err = g.promise(ctx, b, r, id, p)
		as = g.step(id, p, txn.Event{Kind: txn.Logged, Outcome: outcomeOf(err)})
	}
	return vote(p, as, err)
}

// arrived gives a Prepare to the machine of its transaction, a new one unless it came before.
func (g *Group) arrived(id objcache.TxID, r *rpc.PrepareRequest) (*prepared, txn.Actions, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.mu.prepared[id]
	if p != nil {
		return p, p.machine.Step(txn.Event{Kind: txn.Arrived}, false), nil
	}
	// What apply wrote about a transaction is in the rows before its machine leaves the map.
	passed, err := refuses(g.db, r.GetIncarnation(), r.GetTxSeq())
	if err != nil {
		return nil, txn.Actions{}, err
	}
	p = &prepared{coordinator: objcache.GroupID(r.GetCoordinator()), incarnation: r.GetIncarnation(), since: time.Now(), steps: r.GetSteps()}
	as := p.machine.Step(txn.Event{Kind: txn.Arrived}, passed)
	if !p.machine.Over() {
		g.mu.prepared[id] = p
	}
	return p, as, nil
}

// step gives an event to a machine, and forgets the machine when the transaction is over here.
func (g *Group) step(id objcache.TxID, p *prepared, ev txn.Event) txn.Actions {
	g.mu.Lock()
	defer g.mu.Unlock()
	as := p.machine.Step(ev, false)
	if p.machine.Over() {
		delete(g.mu.prepared, id)
	}
	return as
}

// vote carries out what ends a Prepare and returns its answer; nil is yes.
func vote(p *prepared, as txn.Actions, err error) error {
	for _, a := range as {
		switch a.Kind {
		case txn.Release:
			p.release()
		case txn.Refuse:
			return objcache.Errorf(objcache.Conflict, "the transaction has been decided, or its coordinator has gone on")
		case txn.VoteUnknown:
			return objcache.Errorf(objcache.Unavailable, "whether it is promised is not known: %v", err)
		}
	}
	return err
}

func (p *prepared) release() {
	if p.held != nil {
		p.held.Release()
	}
}

// promise locks, evaluates and appends PREPARE. The error's outcome is that of the append.
func (g *Group) promise(ctx context.Context, b basis, r *rpc.PrepareRequest, id objcache.TxID, p *prepared) error {
	failpoint.Hit(failpoint.PrepareReceived)
	if err := g.syncStaged(ctx, r.GetSteps()); err != nil {
		return surely(err)
	}
	failpoint.Hit(failpoint.PrepareSynced)
	held, err := g.locks.Acquire(ctx, meta.Keys(r.GetSteps()), txn.Age{Start: r.GetStart(), Client: id.Client, Seq: id.Seq}, true)
	if err != nil {
		return surely(err)
	}
	p.held = held
	// From here on readers wait: the coordinator may commit as soon as it hears the answer.
	held.Prepared()
	b.term = g.log.Term() // under the locks
	ev, done, err := g.evaluate(r.GetSteps(), nil)
	if err != nil {
		return surely(err)
	}
	defer done()
	en, err := promiseEntry(b, r, id, ev)
	if err != nil {
		return surely(err)
	}
	err = g.propose(en)
	failpoint.Hit(failpoint.PrepareLogged)
	return err
}

func promiseEntry(b basis, r *rpc.PrepareRequest, id objcache.TxID, ev *meta.Eval) (*record.Entry, error) {
	fx, err := ev.Effects()
	if err != nil {
		return nil, err
	}
	p := &record.Prepared{
		Tx: recordTx(id), Coordinator: r.GetCoordinator(), Incarnation: r.GetIncarnation(), Start: r.GetStart(),
		Rows: fx.Rows, Placed: fx.Placed, Dropped: fx.Dropped, Cleaned: fx.Cleaned,
	}
	for _, k := range meta.Keys(r.GetSteps()) {
		p.Locks = append(p.Locks, []byte(k))
	}
	v, err := proto.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("encode promise: %w", err)
	}
	en := b.entry(record.Entry_PREPARE, id)
	en.Rows = []*record.Row{{Key: meta.PreparedKey(recordTx(id)), Value: v}}
	en.Live = &record.Live{Incarnation: r.GetIncarnation(), MinTxSeq: r.GetMinLiveTxSeq()}
	return en, nil
}

// Decide is a participant's second half.
func (g *Group) Decide(_ context.Context, r *rpc.DecideRequest) (*rpc.DecideReply, error) {
	id := objcache.TxID{Client: objcache.ClientID(r.GetClient()), Seq: objcache.SeqNum(r.GetSeq()), TxSeq: r.GetTxSeq()}
	return &rpc.DecideReply{Failure: rpc.FailureOf(g.decide(id, r.GetCommit()))}, nil
}

// decide gives a decision to the machine of its transaction; nil is the acknowledgement.
func (g *Group) decide(id objcache.TxID, commit bool) error {
	ev := txn.Event{Kind: txn.Abort}
	if commit {
		ev.Kind = txn.Commit
	}
	g.mu.Lock()
	p := g.mu.prepared[id]
	if p == nil {
		p = &prepared{}
	}
	as := p.machine.Step(ev, false)
	g.mu.Unlock()
	switch as[0].Kind {
	case txn.ApplyCommit, txn.ApplyAbort:
		return g.settleAs(id, p, as[0].Kind == txn.ApplyCommit)
	case txn.NotYet:
		return objcache.Errorf(objcache.Unavailable, "transaction %v is being promised or decided", id)
	}
	return nil
}

// settleAs appends a participant's COMMIT or ABORT and releases the locks when it is in the log.
func (g *Group) settleAs(id objcache.TxID, p *prepared, commit bool) error {
	var abandoned []*record.Placed
	if !commit && p.steps == nil { // of before a restart: nobody else remembers where its bytes are
		promise := &record.Prepared{}
		if _, err := meta.Get(g.db, meta.PreparedKey(recordTx(id)), promise); err == nil {
			abandoned = promise.GetPlaced()
		}
	}
	failpoint.Hit(failpoint.DecideReceived)
	kind := record.Entry_ABORT
	if commit {
		kind = record.Entry_COMMIT
	}
	err := g.propose(g.basis().entry(kind, id))
	failpoint.Hit(failpoint.DecideLogged)
	for _, a := range g.step(id, p, txn.Event{Kind: txn.Logged, Outcome: outcomeOf(err)}) {
		switch a.Kind {
		case txn.Release:
			if commit {
				g.consume(p.steps)
			}
			g.FreePlaced(abandoned)
			p.release()
		case txn.NotYet:
			return err
		}
	}
	return nil
}

// Doubt: after this long without a decision a participant asks.
const doubtAfter = 250 * time.Millisecond

// settleInDoubt asks coordinators what became of promises that nobody came back for.
func (g *Group) settleInDoubt(ctx context.Context) error {
	tick := time.NewTicker(doubtAfter)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		for id, p := range g.inDoubt() {
			g.ask(ctx, id, p)
		}
	}
}

// inDoubt are the transactions whose coordinators are to be asked now.
func (g *Group) inDoubt() map[objcache.TxID]*prepared {
	g.mu.Lock()
	defer g.mu.Unlock()
	doubt := map[objcache.TxID]*prepared{}
	for id, p := range g.mu.prepared {
		if time.Since(p.since) > doubtAfter && p.machine.Step(txn.Event{Kind: txn.Doubtful}, false)[0].Kind == txn.AskCoordinator {
			doubt[id] = p
		}
	}
	return doubt
}

func (g *Group) ask(ctx context.Context, id objcache.TxID, p *prepared) {
	ctx, cancel := context.WithTimeout(ctx, tellMax)
	defer cancel()
	failpoint.Hit(failpoint.QueryAsking)
	r, err := g.cfg.Peers.Query(ctx, p.coordinator, &rpc.QueryRequest{
		Group: uint32(p.coordinator), Incarnation: p.incarnation, Client: uint64(id.Client), Seq: uint64(id.Seq), TxSeq: id.TxSeq,
	})
	if err != nil {
		return // asked again at the next tick
	}
	failpoint.Hit(failpoint.QueryAnswered)
	switch r.GetOutcome() {
	case rpc.QueryReply_COMMITTED:
		err = g.decide(id, true)
	case rpc.QueryReply_ABORTED:
		err = g.decide(id, false)
	}
	if err != nil {
		g.logger.Debug("in-doubt transaction not settled yet", "tx", id, "error", err)
	}
}
