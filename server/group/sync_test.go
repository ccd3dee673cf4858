package group

import (
	"bytes"
	"testing"

	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
)

// TestPrepare_PromisesOnlyBytesThatAreOnTheDisk: a promise that names staged bytes is a promise to show them after a power loss.
func TestPrepare_PromisesOnlyBytesThatAreOnTheDisk(t *testing.T) {
	w := newWorld(t, 2)
	main, ino := w.ino(2, 0), w.ino(1, 0)
	if err := w.put(7, 1, main, ino); err != nil {
		t.Fatal(err)
	}
	steps := w.stage(ino, 1, 3)
	var promises, early int
	w.groups[1].log.refuse = func(en *record.Entry) (fail, logged bool) {
		for _, r := range en.GetRows() {
			if en.GetKind() == record.Entry_PREPARE && bytes.Equal(r.GetKey(), meta.PreparedKey(en.GetTx())) {
				if promises++; !w.groups[1].bytes.synced(r.GetValue()) {
					early++
				}
			}
		}
		return false, true
	}
	_, err := w.group(2).Transact(t.Context(), Tx{Header: &rpc.Header{Client: 7, Seq: 2}, Steps: append(steps, put(w.ino(2, 1)))})
	if err != nil || promises != 1 || early != 0 {
		t.Errorf("%v; %d promises, %d of them before the bytes they name were synced", err, promises, early)
	}
}
