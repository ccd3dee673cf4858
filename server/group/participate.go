package group

import (
	"context"
	"errors"
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

// prepared is a promise of this group: it will commit or abort as the coordinator decides.
type prepared struct {
	held        *txn.Held
	coordinator objcache.GroupID
	incarnation string
	since       time.Time
	steps       []*rpc.Step // nil after a restart
	deciding    bool
}

// Prepare is a participant's first half: check, lock, promise. The promise is in the log before the answer is yes.
func (g *Group) Prepare(ctx context.Context, r *rpc.PrepareRequest) (*rpc.PrepareReply, error) {
	if err := g.prepare(ctx, r); err != nil {
		return &rpc.PrepareReply{Failure: rpc.FailureOf(err)}, nil
	}
	return &rpc.PrepareReply{}, nil
}

func (g *Group) prepare(ctx context.Context, r *rpc.PrepareRequest) error {
	id := objcache.TxID{Client: objcache.ClientID(r.GetClient()), Seq: objcache.SeqNum(r.GetSeq()), TxSeq: r.GetTxSeq()}
	for _, s := range r.GetSteps() {
		if o := meta.Owner(g.cfg.View(), s); o != g.id {
			return objcache.Errorf(objcache.NotOwner, "step of group %d at group %d", o, g.id)
		}
	}
	failpoint.Hit(failpoint.PrepareReceived)
	if err := g.syncStaged(ctx, r.GetSteps()); err != nil {
		return err
	}
	failpoint.Hit(failpoint.PrepareSynced)
	age := txn.Age{Start: r.GetStart(), Client: id.Client, Seq: id.Seq}
	held, err := g.locks.Acquire(ctx, meta.Keys(r.GetSteps()), age, true)
	if err != nil {
		return err
	}
	// From here on readers wait: the coordinator may commit as soon as it hears the answer.
	held.Prepared()
	if err := g.promise(r, id, held); err != nil {
		if kept := (*keptError)(nil); !errors.As(err, &kept) {
			held.Release()
		}
		return err
	}
	return nil
}

func (g *Group) promise(r *rpc.PrepareRequest, id objcache.TxID, held *txn.Held) error {
	term := g.log.Term()
	ev, done, err := g.evaluate(r.GetSteps(), nil)
	if err != nil {
		return err
	}
	defer done()
	fx, err := ev.Effects()
	if err != nil {
		return err
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
		return fmt.Errorf("encode promise: %w", err)
	}
	pr := &prepared{
		held: held, coordinator: objcache.GroupID(r.GetCoordinator()), incarnation: r.GetIncarnation(), since: time.Now(), steps: r.GetSteps(),
		deciding: true, // a decision must not overtake the promise in the log
	}
	// Known before it is logged: the log may hold it even if the append seems to fail, and then it must be settled like any other.
	g.mu.Lock()
	g.mu.prepared[id] = pr
	g.mu.Unlock()
	err = g.propose(&record.Entry{
		Kind: record.Entry_PREPARE, EvalTerm: term, Tx: recordTx(id),
		Rows: []*record.Row{{Key: meta.PreparedKey(recordTx(id)), Value: v}},
	})
	failpoint.Hit(failpoint.PrepareLogged)
	unknown := err != nil && objcache.KindOf(err) == objcache.Unavailable
	g.mu.Lock()
	pr.deciding = false
	if err != nil && !unknown {
		delete(g.mu.prepared, id)
	}
	g.mu.Unlock()
	if unknown {
		// The locks stay: settleInDoubt asks the coordinator, which will not have committed without this answer.
		return &keptError{err}
	}
	return err
}

// keptError is an Unavailable after which the promise may stand.
type keptError struct{ error }

func (e *keptError) Unwrap() error { return e.error }

// Decide is a participant's second half.
func (g *Group) Decide(_ context.Context, r *rpc.DecideRequest) (*rpc.DecideReply, error) {
	id := objcache.TxID{Client: objcache.ClientID(r.GetClient()), Seq: objcache.SeqNum(r.GetSeq()), TxSeq: r.GetTxSeq()}
	return &rpc.DecideReply{Failure: rpc.FailureOf(g.decide(id, r.GetCommit()))}, nil
}

func (g *Group) decide(id objcache.TxID, commit bool) error {
	g.mu.Lock()
	p := g.mu.prepared[id]
	if p != nil && p.deciding {
		g.mu.Unlock()
		return objcache.Errorf(objcache.Unavailable, "transaction %v is being decided", id)
	}
	if p != nil {
		p.deciding = true
	}
	g.mu.Unlock()
	if p == nil {
		return nil // decided before, or never promised
	}
	failpoint.Hit(failpoint.DecideReceived)
	kind := record.Entry_ABORT
	if commit {
		kind = record.Entry_COMMIT
	}
	var abandoned []*record.Placed
	if !commit && p.steps == nil { // of before a restart: nobody else remembers where its bytes are
		promise := &record.Prepared{}
		if _, err := meta.Get(g.db, meta.PreparedKey(recordTx(id)), promise); err == nil {
			abandoned = promise.GetPlaced()
		}
	}
	if err := g.propose(&record.Entry{Kind: kind, EvalTerm: g.log.Term(), Tx: recordTx(id)}); err != nil {
		g.mu.Lock()
		p.deciding = false
		g.mu.Unlock()
		return err
	}
	failpoint.Hit(failpoint.DecideLogged)
	g.mu.Lock()
	delete(g.mu.prepared, id)
	g.mu.Unlock()
	if commit {
		g.consume(p.steps)
	}
	g.FreePlaced(abandoned)
	p.held.Release()
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
		g.mu.Lock()
		doubt := map[objcache.TxID]*prepared{}
		for id, p := range g.mu.prepared {
			if time.Since(p.since) > doubtAfter && !p.deciding {
				doubt[id] = p
			}
		}
		g.mu.Unlock()
		for id, p := range doubt {
			g.settle(ctx, id, p)
		}
	}
}

func (g *Group) settle(ctx context.Context, id objcache.TxID, p *prepared) {
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
