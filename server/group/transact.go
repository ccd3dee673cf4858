package group

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/failpoint"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
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
	own, others := g.partition(tx.Steps)
	keys := append(meta.Keys(own), tx.Locks...)
	slices.Sort(keys)
	held, err := g.locks.Acquire(ctx, slices.Compact(keys), ageOf(tx.Header), false)
	if err != nil {
		return nil, err
	}
	defer held.Release()
	term := g.log.Term() // before the evaluation: rows of an older term must not be logged in a newer one
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
	c := coordination{g: g, tx: tx, id: g.newTx(tx.Header), others: others, reply: reply, term: term}
	err = c.run(ctx, ev)
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

func (g *Group) newTx(h *rpc.Header) objcache.TxID {
	return objcache.TxID{
		Client: objcache.ClientID(h.GetClient()), Seq: objcache.SeqNum(h.GetSeq()),
		TxSeq: g.log.Term()<<32 | g.counter.Add(1)&0xffffffff,
	}
}

func recordTx(t objcache.TxID) *record.TxID {
	return &record.TxID{Client: uint64(t.Client), Seq: uint64(t.Seq), TxSeq: t.TxSeq}
}

func (g *Group) partition(steps []*rpc.Step) (own []*rpc.Step, others map[objcache.GroupID][]*rpc.Step) {
	v := g.cfg.View()
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
	reply  *rpc.Reply
	term   uint64
	ev     *meta.Eval
	votes  chan txn.Event
}

func (c *coordination) run(ctx context.Context, ev *meta.Eval) error {
	c.ev = ev
	c.votes = make(chan txn.Event, len(c.others))
	groups := make([]objcache.GroupID, 0, len(c.others))
	for g := range c.others {
		groups = append(groups, g)
	}
	slices.Sort(groups)
	c.g.setPending(c.id, true)
	defer c.g.setPending(c.id, false)
	machine := txn.NewCoordinator(groups)
	queue := machine.Step(txn.Event{Kind: txn.Begin})
	for {
		for len(queue) == 0 {
			queue = machine.Step(<-c.votes) // each prepare sends exactly one
		}
		a := queue[0]
		queue = queue[1:]
		switch a.Kind {
		case txn.SendPrepare:
			go c.prepare(ctx, a.Group)
		case txn.AppendCommit:
			queue = append(queue, machine.Step(txn.Event{Kind: txn.Logged, Err: c.append(groups)})...)
		case txn.Reply:
			c.deliver(ctx, queue, groups, machine)
			return a.Err
		}
	}
}

// deliver sends what stands behind the reply: the decision to everyone after a commit, aborts after a refusal.
func (c *coordination) deliver(ctx context.Context, rest []txn.Action, groups []objcache.GroupID, machine *txn.Coordinator) {
	if slices.ContainsFunc(rest, func(a txn.Action) bool { return a.Kind == txn.SendCommit }) {
		c.g.tell(c.id, groups, machine)
	}
	for _, a := range rest {
		if a.Kind == txn.SendAbort {
			go c.g.abortAt(context.WithoutCancel(ctx), a.Group, c.id)
		}
	}
}

func (c *coordination) prepare(ctx context.Context, to objcache.GroupID) {
	v := c.g.cfg.View().Version
	h := c.tx.Header
	r, err := c.g.cfg.Peers.Prepare(ctx, to, &rpc.PrepareRequest{
		Group: uint32(to), Client: uint64(c.id.Client), Seq: uint64(c.id.Seq), TxSeq: c.id.TxSeq,
		Coordinator: uint32(c.g.id), Incarnation: c.g.incarnation, Start: h.GetStart(),
		ViewEpoch: v.Epoch, ViewVersion: v.Version, Steps: c.others[to],
	})
	if err == nil {
		err = r.GetFailure().Err()
	}
	failpoint.Hit(failpoint.PrepareSent)
	c.votes <- txn.Event{Kind: txn.Voted, Group: to, Err: err}
}

// append writes the commit: effects of the own steps, the result, and for several groups the decision.
func (c *coordination) append(groups []objcache.GroupID) error {
	fx, err := c.ev.Effects()
	if err != nil {
		return err
	}
	en := &record.Entry{
		Kind: record.Entry_EFFECTS, EvalTerm: c.term, Tx: recordTx(c.id),
		Rows: fx.Rows, Placed: fx.Placed, Dropped: fx.Dropped, Cleaned: fx.Cleaned,
	}
	if len(groups) > 0 {
		d := &record.Decision{Tx: recordTx(c.id)}
		for _, g := range groups {
			d.Participants = append(d.Participants, uint32(g))
		}
		v, err := proto.Marshal(d)
		if err != nil {
			return fmt.Errorf("encode decision: %w", err)
		}
		failpoint.Hit(failpoint.CommitBefore)
		en.Kind = record.Entry_COMMIT
		en.Rows = append(en.Rows, &record.Row{Key: meta.DecisionKey(recordTx(c.id)), Value: v})
	}
	rows, acknowledged, err := c.g.once.resultRows(c.tx.Header, c.reply)
	if err != nil {
		return err
	}
	en.Rows = append(en.Rows, rows...)
	if len(en.GetRows()) == 0 && len(en.GetPlaced()) == 0 {
		return nil // nothing changes
	}
	if err := c.g.propose(en); err != nil {
		return err
	}
	if len(groups) > 0 {
		failpoint.Hit(failpoint.CommitLogged)
	}
	failpoint.Hit(failpoint.ResultLogged)
	c.g.once.logged(c.tx.Header, acknowledged)
	return nil
}

// propose appends an entry and waits until it is applied, whoever has given up waiting meanwhile: the locks may go only when the outcome is known.
func (g *Group) propose(en *record.Entry) error {
	v := g.cfg.View().Version
	en.ViewEpoch, en.ViewVersion = v.Epoch, v.Version
	data, err := proto.Marshal(en)
	if err != nil {
		return fmt.Errorf("encode log entry: %w", err)
	}
	res, err := g.log.Propose(context.Background(), data)
	if err != nil {
		return err
	}
	if refused, ok := res.(error); ok {
		return refused
	}
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
