package group

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/failpoint"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
	"github.com/objcache/objcache/server/ring"
	"github.com/objcache/objcache/server/txn"
)

// Tx is one transaction that this group coordinates.
type Tx struct {
	Header *rpc.Header // whose request it is; a zero client leaves no result behind
	Steps  []*rpc.Step // evaluated by the owners of their keys, in this order within one group
	// Reply builds the answer from the rows with the own group's effects; nil: an empty one.
	Reply func(r meta.Reader) (*rpc.Reply, error)
	// Placed are extents that this group has already written to disk and synced, for its own CommitChunk steps.
	Placed []*record.Placed
	// Locks are taken beside those of the own steps.
	Locks []string
	// Then runs under the locks after a commit.
	Then func()
}

// Transact runs a transaction to its commit and returns the reply. Errors: those of the steps; Conflict when another transaction was in the way
// (run it again with the same Header.Start); Unavailable when the outcome is unknown.
func (g *Group) Transact(ctx context.Context, tx Tx) (*rpc.Reply, error) {
	if tx.Header.GetClient() == 0 {
		// Ids of transactions and ages are told apart by the client over all groups.
		tx.Header = &rpc.Header{Client: uint64(g.PrivateClient()), Start: tx.Header.GetStart()}
	}
	b := g.basis()
	own, others := g.partition(b.view, tx.Steps)
	keys := append(meta.Keys(own), tx.Locks...)
	slices.Sort(keys)
	held, err := g.locks.Acquire(ctx, slices.Compact(keys), ageOf(tx.Header), false)
	if err != nil {
		return nil, err
	}
	defer held.Release()
	b.term = g.log.Term() // under the locks and before the evaluation: rows of an older term must not be logged in a newer one
	ev, done, err := g.evaluate(own, tx.Placed)
	if err != nil {
		return nil, err
	}
	defer done()
	reply := &rpc.Reply{Result: &rpc.Reply_Empty{Empty: &rpc.Empty{}}}
	if tx.Reply != nil {
		if reply, err = tx.Reply(ev.Reader()); err != nil {
			return nil, err
		}
	}
	c := coordination{g: g, tx: tx, others: others, reply: reply, basis: b, ev: ev}
	err = c.run(ctx)
	g.ended(len(others) > 0, err)
	if err != nil {
		return nil, err
	}
	g.consume(own)
	if tx.Then != nil {
		tx.Then()
	}
	return reply, nil
}

func ageOf(h *rpc.Header) txn.Age {
	return txn.Age{Start: h.GetStart(), Client: objcache.ClientID(h.GetClient()), Seq: objcache.SeqNum(h.GetSeq())}
}

// newTx numbers a transaction. With live it is one that is undecided until setPending(id, false).
func (g *Group) newTx(h *rpc.Header, live bool) (objcache.TxID, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.counter++
	seq, ok := txn.TxSeq(g.log.Term(), g.mu.counter)
	if !ok {
		return objcache.TxID{}, objcache.Errorf(objcache.IO, "group %d has used up the transaction numbers of its term: restart it", g.id)
	}
	id := objcache.TxID{Client: objcache.ClientID(h.GetClient()), Seq: objcache.SeqNum(h.GetSeq()), TxSeq: seq}
	if live {
		g.mu.pending[id] = true
	}
	return id, nil
}

// minLive is the smallest number of a transaction that may still be promised somewhere.
func (g *Group) minLive() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	least := uint64(math.MaxUint64)
	for id := range g.mu.pending {
		least = min(least, id.TxSeq)
	}
	return least
}

func recordTx(t objcache.TxID) *record.TxID {
	return &record.TxID{Client: uint64(t.Client), Seq: uint64(t.Seq), TxSeq: t.TxSeq}
}

func (g *Group) partition(v *ring.View, steps []*rpc.Step) (own []*rpc.Step, others map[objcache.GroupID][]*rpc.Step) {
	others = map[objcache.GroupID][]*rpc.Step{}
	for _, s := range steps {
		if o := meta.Owner(v, s); o == g.id {
			own = append(own, s)
		} else {
			others[o] = append(others[o], s)
		}
	}
	return own, others
}

// evaluate runs steps over the rows as they are; done gives the memory back.
func (g *Group) evaluate(steps []*rpc.Step, placed []*record.Placed) (ev *meta.Eval, done func(), err error) {
	b := g.db.NewIndexedBatch()
	done = func() {
		if cerr := b.Close(); cerr != nil {
			g.logger.Error("close batch", "error", cerr)
		}
	}
	ev = meta.NewEval(b, g.applied.Load(), facts{g})
	ev.Place(placed...)
	for _, s := range steps {
		if _, err := ev.Step(s); err != nil {
			done()
			return nil, nil, err
		}
	}
	return ev, done, nil
}

// coordination carries out what the coordinator's step machine says, for one transaction.
type coordination struct {
	g      *Group
	tx     Tx
	id     objcache.TxID
	others map[objcache.GroupID][]*rpc.Step
	groups []objcache.GroupID // the participants, in the machine's order
	reply  *rpc.Reply
	basis  basis
	ev     *meta.Eval
	votes  chan voted
}

type voted struct {
	from int
	err  error
}

func (c *coordination) run(ctx context.Context) error {
	c.groups = slices.Sorted(maps.Keys(c.others))
	c.votes = make(chan voted, len(c.groups))
	id, err := c.g.newTx(c.tx.Header, len(c.groups) > 0)
	if err != nil {
		return err
	}
	c.id = id
	defer c.g.setPending(c.id, false)
	machine := txn.NewCoordinator(len(c.groups))
	errs := make([]error, len(c.groups))
	as := machine.Step(txn.Event{Kind: txn.Begin})
	for {
		switch as[0].Kind {
		case txn.SendPrepare:
			live := c.g.minLive()
			for i := range as[0].To.All() {
				go c.prepare(ctx, i, live)
			}
			as = txn.Actions{}
		case txn.AppendCommit:
			err = c.append()
			as = machine.Step(txn.Event{Kind: txn.Logged, Outcome: outcomeOf(err)})
		case txn.Nothing:
			v := <-c.votes // each prepare sends exactly one
			errs[v.from] = v.err
			as = machine.Step(txn.Event{Kind: txn.Voted, From: v.from, Outcome: voteOf(v.err)})
		default:
			if i, ok := machine.Cause(); ok {
				err = errs[i]
			}
			c.deliver(ctx, as[1], &machine)
			return err
		}
	}
}

// voteOf: only a definite refusal means that nothing is promised there; otherwise the answer may have been lost.
func voteOf(err error) txn.Outcome {
	switch k := objcache.KindOf(err); {
	case err == nil:
		return txn.OK
	case k == objcache.Unavailable || k == objcache.Interrupted:
		return txn.Unknown
	}
	return txn.No
}

// deliver sends what stands behind the reply: the decision to everyone after a commit, aborts after a refusal.
func (c *coordination) deliver(ctx context.Context, a txn.Action, machine *txn.Coordinator) {
	switch a.Kind {
	case txn.SendCommit:
		c.g.tell(c.id, c.groups, machine)
	case txn.SendAbort:
		for i := range a.To.All() {
			go c.g.abortAt(context.WithoutCancel(ctx), c.groups[i], c.id)
		}
	}
}

func (c *coordination) prepare(ctx context.Context, i int, live uint64) {
	to, v, h := c.groups[i], c.basis.view.Version, c.tx.Header
	r, err := c.g.cfg.Peers.Prepare(ctx, to, &rpc.PrepareRequest{
		Group: uint32(to), Client: uint64(c.id.Client), Seq: uint64(c.id.Seq), TxSeq: c.id.TxSeq,
		Coordinator: uint32(c.g.id), Incarnation: c.g.incarnation, Start: h.GetStart(),
		ViewEpoch: v.Epoch, ViewVersion: v.Version, Steps: c.others[to], MinLiveTxSeq: live,
	})
	if err == nil {
		err = r.GetFailure().Err()
	}
	failpoint.Hit(failpoint.PrepareSent)
	c.votes <- voted{i, err}
}

// append writes the commit: effects of the own steps, the result, and for several groups the decision.
func (c *coordination) append() error {
	fx, err := c.ev.Effects()
	if err != nil {
		return surely(err)
	}
	en := c.basis.entry(record.Entry_EFFECTS, c.id)
	en.Rows, en.Placed, en.Dropped, en.Cleaned = fx.Rows, fx.Placed, fx.Dropped, fx.Cleaned
	if len(c.groups) > 0 {
		d := &record.Decision{Tx: recordTx(c.id)}
		for _, g := range c.groups {
			d.Participants = append(d.Participants, uint32(g))
		}
		v, err := proto.Marshal(d)
		if err != nil {
			return surely(fmt.Errorf("encode decision: %w", err))
		}
		failpoint.Hit(failpoint.CommitBefore)
		en.Kind = record.Entry_COMMIT
		en.Rows = append(en.Rows, &record.Row{Key: meta.DecisionKey(recordTx(c.id)), Value: v})
	}
	rows, acknowledged, err := c.g.once.resultRows(c.tx.Header, c.reply)
	if err != nil {
		return surely(err)
	}
	en.Rows = append(en.Rows, rows...)
	if len(en.GetRows()) == 0 && len(en.GetPlaced()) == 0 {
		return nil // nothing changes
	}
	if err := c.g.propose(en); err != nil {
		return err
	}
	if len(c.groups) > 0 {
		failpoint.Hit(failpoint.CommitLogged)
	}
	failpoint.Hit(failpoint.ResultLogged)
	c.g.once.logged(c.tx.Header, acknowledged)
	return nil
}

func (g *Group) setPending(id objcache.TxID, on bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if on {
		g.mu.pending[id] = true
	} else {
		delete(g.mu.pending, id)
	}
}
