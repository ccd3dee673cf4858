package group

import (
	"context"
	"fmt"
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
	o.mu.stored = map[objcache.ClientID]map[objcache.SeqNum]bool{}
}

// Once runs f for a request unless it has run, or is running: then its result is returned.
func (g *Group) Once(ctx context.Context, h *rpc.Header, f func() (*rpc.Reply, error)) (*rpc.Reply, error) {
	if h.GetClient() == 0 || h.GetSeq() == 0 {
		return f()
	}
	id := requestID{objcache.ClientID(h.GetClient()), objcache.SeqNum(h.GetSeq())}
	o := &g.once
	o.mu.Lock()
	if r := o.mu.running[id]; r != nil {
		o.mu.Unlock()
		select {
		case <-r.done:
			return r.reply, r.err
		case <-ctx.Done():
			return nil, objcache.Errorf(objcache.KindOf(ctx.Err()), "request is under way: %w", ctx.Err())
		}
	}
	if o.mu.stored[id.client][id.seq] {
		o.mu.Unlock()
		return g.storedResult(id)
	}
	r := &running{done: make(chan struct{})}
	o.mu.running[id] = r
	o.mu.Unlock()
	r.reply, r.err = f()
	o.mu.Lock()
	delete(o.mu.running, id)
	o.mu.Unlock()
	close(r.done)
	return r.reply, r.err
}

func (g *Group) storedResult(id requestID) (*rpc.Reply, error) {
	res := &record.Result{}
	ok, err := meta.Get(g.db, meta.ResultKey(id.client, id.seq), res)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, objcache.Errorf(objcache.Stale, "result of request %d was acknowledged before", id.seq)
	}
	reply := &rpc.Reply{}
	if err := proto.Unmarshal(res.GetReply(), reply); err != nil {
		return nil, objcache.Errorf(objcache.Corrupt, "stored result of request %d: %w", id.seq, err)
	}
	return reply, nil
}

// resultRows are the rows that remember a request's result and forget those that its client has acknowledged.
func (o *once) resultRows(h *rpc.Header, reply *rpc.Reply) ([]*record.Row, error) {
	if h.GetClient() == 0 || h.GetSeq() == 0 {
		return nil, nil
	}
	b, err := proto.Marshal(reply)
	if err != nil {
		return nil, fmt.Errorf("encode result: %w", err)
	}
	v, err := proto.Marshal(&record.Result{Reply: b})
	if err != nil {
		return nil, fmt.Errorf("encode result: %w", err)
	}
	c := objcache.ClientID(h.GetClient())
	rows := []*record.Row{{Key: meta.ResultKey(c, objcache.SeqNum(h.GetSeq())), Value: v}}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mu.stored[c] == nil {
		o.mu.stored[c] = map[objcache.SeqNum]bool{}
	}
	for seq := range o.mu.stored[c] {
		if uint64(seq) < h.GetAckBelow() {
			delete(o.mu.stored[c], seq)
			rows = append(rows, &record.Row{Key: meta.ResultKey(c, seq)})
		}
	}
	o.mu.stored[c][objcache.SeqNum(h.GetSeq())] = true
	return rows, nil
}

// restore learns of the results in rows at a start.
func (o *once) restore(r meta.Reader) error {
	lo, hi := meta.ResultBounds()
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
