package fsck

import (
	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
)

// Codes of transactions that are not over.
const (
	promiseLeft  Code = "promise-left"  // a participant does not know the outcome; its locks are held
	decisionLeft Code = "decision-left" // a coordinator does not know that everybody has heard
	promiseLost  Code = "promise-lost"  // a participant waits for a coordinator that has lost its memory
)

// transactions wants none to be in doubt where everything has come to rest, and none for ever elsewhere.
func (s *state) transactions() {
	s.lostPromises()
	if !s.c.Quiet {
		return
	}
	for _, p := range s.promises {
		s.add(promiseLeft, Error, p.group, 0, "transaction %v of group %d is in doubt", txOf(p.GetTx()), p.GetCoordinator())
	}
	for _, d := range s.decisions {
		s.add(decisionLeft, Warning, d.group, 0, "transaction %v is not known to all of %v", txOf(d.GetTx()), d.GetParticipants())
	}
}

// lostPromises finds promises of which only an incarnation knows the outcome that is no more.
func (s *state) lostPromises() {
	now := map[objcache.GroupID]string{}
	for _, g := range s.groups {
		now[g.id] = g.incarnation
	}
	decided := map[string]bool{}
	for _, d := range s.decisions {
		decided[string(meta.DecisionKey(d.GetTx()))] = true
	}
	for _, p := range s.promises {
		c := objcache.GroupID(p.GetCoordinator())
		_, known := s.c.View.Member(c)
		if decided[string(meta.DecisionKey(p.GetTx()))] || known && (now[c] == "" || now[c] == p.GetIncarnation()) {
			continue
		}
		f := s.add(promiseLost, Error, p.group, 0, "transaction %v of group %d, which does not remember it, is in doubt for ever", txOf(p.GetTx()), c)
		f.by(meta.PreparedKey(p.GetTx()), meta.DecisionKey(p.GetTx())).tx = p.GetTx()
		f.Bytes = int64(len(p.GetPlaced()))
	}
}

func txOf(t *record.TxID) objcache.TxID {
	return objcache.TxID{Client: objcache.ClientID(t.GetClient()), Seq: objcache.SeqNum(t.GetSeq()), TxSeq: t.GetTxSeq()}
}
