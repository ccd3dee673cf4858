package group

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
)

// once makes a retried request take effect once: results stay in rows until the client acknowledges them, and a request that is still under way
// is joined, not started again.
type once struct {
	mu struct {
		sync.Mutex
		running map[requestID]*running
		stored  map[objcache.ClientID]map[objcache.SeqNum]bool // results in rows
		unknown map[requestID]bool                             // ended without a known outcome: the log must be asked
		below   map[objcache.ClientID]objcache.SeqNum          // acknowledged, in rows: nothing below is run, again or for the first time
	}
}

type requestID struct {
	client objcache.ClientID
	seq    objcache.SeqNum
}

type running struct {
	done  chan struct{}
	reply *rpc.Reply
	err   error
}

func (o *once) init() {
	o.mu.running = map[requestID]*running{}
	o.mu.unknown = map[requestID]bool{}
	o.mu.stored = map[objcache.ClientID]map[objcache.SeqNum]bool{}
	o.mu.below = map[objcache.ClientID]objcache.SeqNum{}
}

// Once runs f for a request unless it has run, or is running: then its result is returned. A request that was given up by whoever sent it first is
// run again for those who wait for it.
func (g *Group) Once(ctx context.Context, h *rpc.Header, f func() (*rpc.Reply, error)) (*rpc.Reply, error) {
	if h.GetClient() == 0 || h.GetSeq() == 0 {
		return f()
	}
	id := requestID{objcache.ClientID(h.GetClient()), objcache.SeqNum(h.GetSeq())}
	for {
		mine, other := g.once.join(id)
		if mine != nil {
			mine.reply, mine.err = g.onceOnly(ctx, id, f)
			g.once.leave(id, mine)
			return mine.reply, mine.err
		}
		select {
		case <-other.done:
			if k := objcache.KindOf(other.err); other.err == nil || k != objcache.Interrupted && k != objcache.Unavailable || ctx.Err() != nil {
				return other.reply, other.err
			}
		case <-ctx.Done():
			return nil, objcache.Errorf(objcache.KindOf(ctx.Err()), "request is under way: %w", ctx.Err())
		}
	}
}

// join begins the run of a request, or returns the one under way.
func (o *once) join(id requestID) (mine, other *running) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if r := o.mu.running[id]; r != nil {
		return nil, r
	}
	r := &running{done: make(chan struct{})}
	o.mu.running[id] = r
	return r, nil
}

func (o *once) leave(id requestID, r *running) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.mu.running, id)
	if objcache.KindOf(r.err) == objcache.Unavailable && r.err != nil {
		o.mu.unknown[id] = true
	} else {
		delete(o.mu.unknown, id)
	}
	close(r.done)
}

// onceOnly returns the stored result of a request, or else runs it.
func (g *Group) onceOnly(ctx context.Context, id requestID, f func() (*rpc.Reply, error)) (*rpc.Reply, error) {
	g.once.mu.Lock()
	unknown := g.once.mu.unknown[id]
	below := g.once.mu.below[id.client]
	g.once.mu.Unlock()
	if id.seq < below { // delayed on its way: its client has long gone on
		return nil, objcache.Errorf(objcache.Invalid, "request %d: client %x has acknowledged all below %d", id.seq, uint64(id.client), below)
	}
	if unknown { // its entry may have been applied after all
		if err := g.log.Read(ctx); err != nil {
			return nil, err
		}
	}
	res := &record.Result{}
	ok, err := meta.Get(g.db, meta.ResultKey(id.client, id.seq), res)
	if err != nil {
		return nil, err
	}
	if !ok {
		return f()
	}
	reply := &rpc.Reply{}
	if err := proto.Unmarshal(res.GetReply(), reply); err != nil {
		return nil, objcache.Errorf(objcache.Corrupt, "stored result of request %d: %w", id.seq, err)
	}
	return reply, nil
}

// resultRows are the rows that remember a request's result and forget those that its client has acknowledged; logged is told when they are.
func (o *once) resultRows(h *rpc.Header, reply *rpc.Reply) (rows []*record.Row, acknowledged []objcache.SeqNum, err error) {
	if h.GetClient() == 0 || h.GetSeq() == 0 {
		return nil, nil, nil
	}
	b, err := proto.Marshal(reply)
	if err != nil {
		return nil, nil, fmt.Errorf("encode result: %w", err)
	}
	v, err := proto.Marshal(&record.Result{Reply: b})
	if err != nil {
		return nil, nil, fmt.Errorf("encode result: %w", err)
	}
	c := objcache.ClientID(h.GetClient())
	rows = []*record.Row{{Key: meta.ResultKey(c, objcache.SeqNum(h.GetSeq())), Value: v}}
	o.mu.Lock()
	defer o.mu.Unlock()
	for seq := range o.mu.stored[c] {
		if uint64(seq) < h.GetAckBelow() {
			acknowledged = append(acknowledged, seq)
		}
	}
	slices.Sort(acknowledged)
	for _, seq := range acknowledged {
		rows = append(rows, &record.Row{Key: meta.ResultKey(c, seq)})
	}
	if len(acknowledged) > 0 {
		v, err := proto.Marshal(&record.Acknowledged{Below: max(h.GetAckBelow(), uint64(o.mu.below[c]))})
		if err != nil {
			return nil, nil, fmt.Errorf("encode acknowledgement: %w", err)
		}
		rows = append(rows, &record.Row{Key: meta.AcknowledgedKey(c), Value: v})
	}
	return rows, acknowledged, nil
}

// logged notes that a request's result is in the log and that those acknowledged are not in the rows any more.
func (o *once) logged(h *rpc.Header, acknowledged []objcache.SeqNum) {
	if h.GetSeq() == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	c := objcache.ClientID(h.GetClient())
	if o.mu.stored[c] == nil {
		o.mu.stored[c] = map[objcache.SeqNum]bool{}
	}
	o.mu.stored[c][objcache.SeqNum(h.GetSeq())] = true
	for _, seq := range acknowledged {
		delete(o.mu.stored[c], seq)
	}
	if len(acknowledged) > 0 {
		o.mu.below[c] = max(o.mu.below[c], objcache.SeqNum(h.GetAckBelow()))
	}
}

// busy reports whether a request of a client is running here.
func (o *once) busy(c objcache.ClientID) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for id := range o.mu.running {
		if id.client == c {
			return true
		}
	}
	return false
}

// forget returns what removes everything kept for a client's requests; done is told when it is removed.
func (o *once) forget(c objcache.ClientID) (rows []*record.Row, done func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var seqs []objcache.SeqNum
	for seq := range o.mu.stored[c] {
		seqs = append(seqs, seq)
	}
	slices.Sort(seqs)
	for _, seq := range seqs {
		rows = append(rows, &record.Row{Key: meta.ResultKey(c, seq)})
	}
	if o.mu.below[c] > 0 {
		rows = append(rows, &record.Row{Key: meta.AcknowledgedKey(c)})
	}
	return rows, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.mu.stored, c)
		delete(o.mu.below, c)
		for id := range o.mu.unknown {
			if id.client == c {
				delete(o.mu.unknown, id)
			}
		}
	}
}

// restore learns of the results in rows at a start.
func (o *once) restore(r meta.Reader) error {
	lo, hi := meta.AcknowledgedBounds()
	err := meta.Scan(r, lo, hi, func(k, v []byte) (bool, error) {
		a := &record.Acknowledged{}
		if err := proto.Unmarshal(v, a); err != nil {
			return false, objcache.Errorf(objcache.Corrupt, "acknowledgement: %w", err)
		}
		if c, ok := meta.ParseAcknowledgedKey(k); ok {
			o.mu.below[c] = objcache.SeqNum(a.GetBelow())
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	lo, hi = meta.ResultBounds()
	return meta.Scan(r, lo, hi, func(k, _ []byte) (bool, error) {
		if c, seq, ok := meta.ParseResultKey(k); ok {
			if o.mu.stored[c] == nil {
				o.mu.stored[c] = map[objcache.SeqNum]bool{}
			}
			o.mu.stored[c][seq] = true
		}
		return true, nil
	})
}
