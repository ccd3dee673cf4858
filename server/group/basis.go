package group

import (
	"context"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"google.golang.org/protobuf/proto"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
	"github.com/objcache/objcache/server/ring"
	"github.com/objcache/objcache/server/txn"
)

// basis is what an evaluation rests on: apply refuses it in another term or under another view.
type basis struct {
	term uint64
	view *ring.View
}

// basis must be taken before rows are read.
func (g *Group) basis() basis { return basis{term: g.log.Term(), view: g.cfg.View()} }

func (b basis) entry(kind record.Entry_Kind, id objcache.TxID) *record.Entry {
	v := b.view.Version
	return &record.Entry{Kind: kind, EvalTerm: b.term, ViewEpoch: v.Epoch, ViewVersion: v.Version, Tx: recordTx(id)}
}

// write logs rows of the group's own, which belong to no transaction.
func (g *Group) write(b basis, rows ...*record.Row) error {
	en := b.entry(record.Entry_EFFECTS, objcache.TxID{})
	en.Rows = rows
	return g.propose(en)
}

func viewOf(en *record.Entry) objcache.ViewVersion {
	return objcache.ViewVersion{Epoch: en.GetViewEpoch(), Version: en.GetViewVersion()}
}

// stale says why an evaluation is refused; nil when it is not.
func (g *Group) stale(en *record.Entry, term uint64) error {
	if en.GetEvalTerm() != term {
		return objcache.Errorf(objcache.Unavailable, "evaluated in term %d, logged in term %d", en.GetEvalTerm(), term)
	}
	if g.view != (objcache.ViewVersion{}) && viewOf(en) != g.view {
		return objcache.Errorf(objcache.Unavailable, "evaluated under view %v, logged under view %v", viewOf(en), g.view)
	}
	return nil
}

// openView reads under which view evaluations count.
func (g *Group) openView() error {
	v := &record.View{}
	_, err := meta.Get(g.db, meta.ViewKey(), v)
	g.view.Epoch, g.view.Version = v.GetEpoch(), v.GetVersion()
	return err
}

// applyView replaces the view under which evaluations count by a newer one.
func (g *Group) applyView(b *pebble.Batch, en *record.Entry, index uint64) {
	v := viewOf(en)
	if !g.view.Less(v) {
		return
	}
	g.view = v
	row, err := proto.Marshal(&record.View{Epoch: v.Epoch, Version: v.Version})
	must(g, index, err)
	must(g, index, b.Set(meta.ViewKey(), row, nil))
}

// adoptView makes the configured view the one under which evaluations count.
func (g *Group) adoptView() error {
	b := g.basis()
	was := &record.View{}
	if _, err := meta.Get(g.db, meta.ViewKey(), was); err != nil {
		return err
	}
	switch v := (objcache.ViewVersion{Epoch: was.GetEpoch(), Version: was.GetVersion()}); {
	case v == b.view.Version:
		return nil
	case b.view.Version.Less(v):
		return objcache.Errorf(objcache.Invalid, "the group's state is of view %v, configured is the older %v", v, b.view.Version)
	}
	return g.propose(b.entry(record.Entry_VIEW, objcache.TxID{}))
}

// sureError is a failure after which nothing is in the log, nor ever will be.
type sureError struct{ error }

func (e sureError) Unwrap() error { return e.error }

func surely(err error) error { return sureError{err} }

// outcomeOf says what an error of propose means for the log.
func outcomeOf(err error) txn.Outcome {
	switch err.(type) { //nolint:errorlint // of propose itself, never wrapped
	case nil:
		return txn.OK
	case sureError:
		return txn.No
	}
	return txn.Unknown
}

// propose appends an entry and waits until it is applied, whoever has given up waiting meanwhile: the locks may go only when the outcome is known.
func (g *Group) propose(en *record.Entry) error {
	data, err := proto.Marshal(en)
	if err != nil {
		return surely(fmt.Errorf("encode log entry: %w", err))
	}
	res, err := g.log.Propose(context.Background(), data)
	if err != nil {
		if objcache.KindOf(err) == objcache.Invalid { // too large to be logged
			return surely(err)
		}
		return err
	}
	if refused, ok := res.(error); ok {
		return surely(refused)
	}
	return nil
}
