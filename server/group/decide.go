package group

import (
	"context"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/failpoint"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
	"github.com/objcache/objcache/server/txn"
)

// Pauses between attempts to tell a participant the decision.
const (
	tellFirst = 20 * time.Millisecond
	tellMax   = 2 * time.Second
)

// tell brings a decision to the participants in the background and ends the transaction when all have it.
func (g *Group) tell(id objcache.TxID, groups []objcache.GroupID, machine *txn.Coordinator) {
	g.spawn(func() error {
		acks := make(chan int, len(groups))
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		for i, to := range groups {
			go g.tellOne(ctx, to, id, func() { acks <- i })
		}
		for !machine.Done() {
			select {
			case i := <-acks:
				if machine.Step(txn.Event{Kind: txn.Acked, From: i})[0].Kind == txn.AppendEnd {
					g.end(id)
					machine.Step(txn.Event{Kind: txn.Ended})
				}
			case <-g.ctx.Done():
				return nil
			}
		}
		return nil
	})
}

func (g *Group) tellOne(ctx context.Context, to objcache.GroupID, id objcache.TxID, acknowledged func()) {
	pause := tellFirst
	for {
		failpoint.Hit(failpoint.CommitTelling)
		r, err := g.cfg.Peers.Decide(ctx, to, &rpc.DecideRequest{
			Group: uint32(to), Client: uint64(id.Client), Seq: uint64(id.Seq), TxSeq: id.TxSeq, Commit: true,
		})
		if err == nil {
			err = r.GetFailure().Err()
		}
		if err == nil {
			failpoint.Hit(failpoint.CommitTold)
			acknowledged()
			return
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
		pause = min(2*pause, tellMax)
	}
}

// end forgets a decision that every participant has. If the entry is lost, the next start tells them again.
func (g *Group) end(id objcache.TxID) {
	en := g.basis().entry(record.Entry_END, id)
	en.Rows = []*record.Row{{Key: meta.DecisionKey(recordTx(id))}}
	err := g.propose(en)
	failpoint.Hit(failpoint.EndLogged)
	if err != nil {
		g.logger.Debug("end not logged, the next start repeats it", "tx", id, "error", err)
	}
}

func (g *Group) abortAt(ctx context.Context, to objcache.GroupID, id objcache.TxID) {
	ctx, cancel := context.WithTimeout(ctx, tellMax)
	defer cancel()
	failpoint.Hit(failpoint.AbortTelling)
	r, err := g.cfg.Peers.Decide(ctx, to, &rpc.DecideRequest{
		Group: uint32(to), Client: uint64(id.Client), Seq: uint64(id.Seq), TxSeq: id.TxSeq,
	})
	if err == nil {
		err = r.GetFailure().Err()
	}
	if err != nil {
		g.logger.Debug("abort not delivered, the participant will ask", "tx", id, "participant", to, "error", err)
	}
}

// Query answers a participant in doubt. Only the incarnation that coordinated may say "no record, so aborted", and only after a read point
// of its own term.
func (g *Group) Query(ctx context.Context, r *rpc.QueryRequest) (*rpc.QueryReply, error) {
	id := objcache.TxID{Client: objcache.ClientID(r.GetClient()), Seq: objcache.SeqNum(r.GetSeq()), TxSeq: r.GetTxSeq()}
	if r.GetIncarnation() != g.incarnation {
		return &rpc.QueryReply{Outcome: rpc.QueryReply_UNKNOWN}, nil
	}
	failpoint.Hit(failpoint.QueryReceived)
	g.mu.Lock()
	pending := g.mu.pending[id]
	g.mu.Unlock()
	if pending {
		return &rpc.QueryReply{Outcome: rpc.QueryReply_PENDING}, nil
	}
	if err := g.log.Read(ctx); err != nil {
		return nil, err
	}
	ok, err := meta.Get(g.db, meta.DecisionKey(recordTx(id)), &record.Decision{})
	switch {
	case err != nil:
		return nil, err
	case ok:
		return &rpc.QueryReply{Outcome: rpc.QueryReply_COMMITTED}, nil
	}
	return &rpc.QueryReply{Outcome: rpc.QueryReply_ABORTED}, nil
}
