package group

import (
	"github.com/cockroachdb/pebble/v2"
	"google.golang.org/protobuf/proto"

	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
	"github.com/objcache/objcache/server/txn"
)

// barOf is what the rows remember of a coordinator's incarnation.
func barOf(r meta.Reader, incarnation string) (txn.Bar, error) {
	l := &record.Live{}
	_, err := meta.Get(r, meta.BarKey(incarnation), l)
	return txn.Bar(l.GetMinTxSeq()), err
}

// refuses reports whether a Prepare comes too late.
func refuses(r meta.Reader, incarnation string, txSeq uint64) (bool, error) {
	bar, err := barOf(r, incarnation)
	if err != nil {
		return false, err
	}
	decided, err := meta.Get(r, meta.FinishedKey(incarnation, txSeq), &record.Finished{})
	return bar.Refuses(txSeq, decided), err
}

// raiseBar applies what a PREPARE says of its coordinator's other transactions: those that were decided here and are well below the new bar need not
// be remembered any more.
func (g *Group) raiseBar(b *pebble.Batch, en *record.Entry, index uint64) {
	l := en.GetLive()
	if l == nil {
		return // logged before bars were
	}
	old, err := barOf(g.db, l.GetIncarnation())
	must(g, index, err)
	bar := old.Raise(en.GetTx().GetTxSeq(), l.GetMinTxSeq())
	if bar == old {
		return
	}
	v, err := proto.Marshal(&record.Live{Incarnation: l.GetIncarnation(), MinTxSeq: uint64(bar)})
	must(g, index, err)
	must(g, index, b.Set(meta.BarKey(l.GetIncarnation()), v, nil))
	lo, hi := meta.FinishedKey(l.GetIncarnation(), g.forgotten(old)), meta.FinishedKey(l.GetIncarnation(), g.forgotten(bar))
	must(g, index, meta.Scan(g.db, lo, hi, func(k, _ []byte) (bool, error) { return true, b.Delete(k, nil) }))
}

// forgotten is the number below which nothing is remembered.
func (g *Group) forgotten(bar txn.Bar) uint64 {
	keep, n := uint64(max(g.cfg.KeepFinished, 0)), uint64(bar)&(1<<txn.CounterBits-1)
	if n >= keep {
		return uint64(bar) - keep
	}
	return (max(uint64(bar)>>txn.CounterBits, 1) - 1) << txn.CounterBits // of the term before, all
}

// remember notes in the entry that decides a promise how it was decided here.
func (g *Group) remember(b *pebble.Batch, p *record.Prepared, index uint64, committed bool) {
	bar, err := barOf(g.db, p.GetIncarnation())
	must(g, index, err)
	if seq := p.GetTx().GetTxSeq(); seq >= g.forgotten(bar) {
		v, err := proto.Marshal(&record.Finished{Committed: committed})
		must(g, index, err)
		must(g, index, b.Set(meta.FinishedKey(p.GetIncarnation(), seq), v, nil))
	}
}
