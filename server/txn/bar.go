package txn

// CounterBits is how many bits of a TxSeq count the transactions of one term of their coordinator; the term is above.
const CounterBits = 40

// TxSeq numbers the counter-th transaction of a term. Within an incarnation a later one has a larger number. ok is false when a term has used up its
// numbers.
func TxSeq(term, counter uint64) (seq uint64, ok bool) {
	return term<<CounterBits | counter&(1<<CounterBits-1), counter < 1<<CounterBits && term < 1<<(64-CounterBits)
}

// Bar is what a participant remembers of one incarnation of a coordinator: a Prepare with a smaller TxSeq comes too late. It is kept in the log, beside
// the TxSeqs from the bar on that have been decided here. Invariant: no transaction below the bar may still be promised for the first time.
type Bar uint64

// Raise returns the bar after a Prepare: minLive is the smallest TxSeq of the incarnation that may still be promised somewhere, and terms before the
// transaction's own have ended.
func (b Bar) Raise(txSeq, minLive uint64) Bar {
	return max(b, Bar(minLive), Bar(txSeq&^(1<<CounterBits-1)))
}

// Refuses reports whether a Prepare must not be promised. decided says whether the transaction has been decided here and is remembered.
func (b Bar) Refuses(txSeq uint64, decided bool) bool { return Bar(txSeq) < b || decided }

// Remembers reports whether a decision must be remembered: those below the bar are refused without.
func (b Bar) Remembers(txSeq uint64) bool { return Bar(txSeq) >= b }
