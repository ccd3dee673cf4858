package fsck

import (
	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/record"
)

// Codes of transactions that are not over.
const (
	promiseLeft  Code = "promise-left"  // a participant does not know the outcome; its locks are held
	decisionLeft Code = "decision-left" // a coordinator does not know that everybody has heard
)

// transactions wants none to be in doubt where everything has come to rest. Elsewhere both kinds are ordinary.
func (s *state) transactions() {
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

func txOf(t *record.TxID) objcache.TxID {
	return objcache.TxID{Client: objcache.ClientID(t.GetClient()), Seq: objcache.SeqNum(t.GetSeq()), TxSeq: t.GetTxSeq()}
}
