//go:build integration

package servertest

import (
	"slices"
	"testing"

	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/external"
	"github.com/objcache/objcache/test/faultproxy"
)

// A server that dies when its object has been written, and does not know it yet, finds in the log that it was about to: it takes the object for its own,
// and for nobody else's.
func TestPersist_AnObjectThatWasBeingWrittenAtADeathIsKnownByItsIntent(t *testing.T) {
	f := newFaulty(t, 1, nil)
	body := random(100<<10, 1)
	f.write(f.b, "k", body)
	remove := f.fault(faultproxy.Rule{Op: external.OpPut, Key: "^k$", Fault: faultproxy.Fault{LostReply: true}})
	flushed := make(chan error, 1)
	go func() {
		flushed <- f.c.Work(t.Context(), rpc.WorkRequest_FLUSH, 0, func(*rpc.Progress) {})
	}()
	eventually(t, func() bool {
		_, err := f.s3.Head(t.Context(), "k")
		return err == nil
	})
	f.cl.Down(0)
	remove()
	f.cl.Up(0)
	<-flushed // it may have failed with the server
	f.flush()
	if got := f.object("k"); !slices.Equal(got, body) {
		t.Errorf("the object has %d bytes", len(got))
	}
	if ks := f.keys(); !slices.Equal(ks, []string{"k"}) {
		t.Errorf("keys %q", ks)
	}
}
