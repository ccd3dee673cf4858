//go:build integration

package servertest

import (
	"testing"

	"github.com/objcache/objcache/server/external"
	"github.com/objcache/objcache/test/faultproxy"
)

func TestClaims_ANewFileComesAfterADeleteThatFailed(t *testing.T) {
	f := newFaulty(t, 3, patient)
	f.write(f.b, "k", random(5000, 1))
	f.flush()
	mend := f.fault(faultproxy.Rule{Op: external.OpDelete, Key: "^k$", Fault: faultproxy.Fault{Status: 403}})
	if err := f.c.Unlink(t.Context(), f.b, "k"); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return f.cl.Logged("not persisted yet") > 0 }) // the delete has begun and failed
	young := random(6000, 2)
	f.write(f.b, "k", young)
	mend()
	f.flush()
	if got := f.object("k"); string(got) != string(young) {
		t.Error("the object is not the new file's")
	}
}
