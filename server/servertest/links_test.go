//go:build integration

package servertest

import "testing"

func TestLinks_ANameThatGoesTakesWhatItOwedWithIt(t *testing.T) {
	tr := tree{}
	r := plain(t, tr, "p", "q", "s")
	// Names that never reached the bucket, removed while the file has another that did.
	r.do(tr, "ln p/a/f p/x", "rm p/x")
	r.do(tr, "ln p/b/f p/y", "write p/z", "mv p/z p/y")
	// The name whose object was written last, removed while the file has another.
	r.do(tr, "ln q/a/f q/x", "ln q/b/f q/y")
	r.flush()
	r.do(tr, "rm q/x", "rm q/b/f")
	// A name of a directory that moved.
	r.do(tr, "ln s/a/f s/b/x", "ln s/b/f s/a/x")
	r.flush()
	r.do(tr, "swap s/a s/b", "rm s/b/x", "rm s/a/x", "ln s/b/f s/y", "rm s/y")
	r.flush()
	r.sameAs(tr)
	r.reload(1).sameAs(tr)
}
