package external

// Guard wraps a store the way every bucket of a server is wrapped: each attempt is counted, at most inFlight requests are
// under way, and what fails for the moment is repeated. A pause between attempts takes no place.
func Guard(s Store, m *Metrics, inFlight int, c RetryConfig) Store {
	return Retry(Limit(m.Wrap(Failpoints(s)), inFlight), c)
}
