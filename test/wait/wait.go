// Package wait waits in tests for states, never for times. It promises to fail the test when a state does not come.
package wait

import (
	"testing"
	"time"
)

// Until returns when ok is true, and fails the test when it is not within limit; what names the state.
func Until(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(limit); !ok(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, limit)
		}
	}
}
