package transfer

import (
	"testing"

	"github.com/objcache/objcache/server/record"
)

// A file that was renamed away just before the intent for its old name was logged owes for that name: the debt must outlive the intent.
func TestGiveUp_KeepsTheDebtOfANameThatWasLostMeanwhile(t *testing.T) {
	it := &record.Intent{Dir: 5, Name: "n", Version: 3, Key: "now/n"}
	steps := giveUpSteps(&record.Inode{Trash: []*record.Base{{Dir: 5, Name: "n", Key: "old/n", Etag: "e"}}}, 9, it)
	if s := steps[1].GetSettleEntry(); s.GetGone() || s.GetKey() != "old/n" || s.GetEtag() != "e" {
		t.Errorf("with an object that stands there: %v", s)
	}
	steps = giveUpSteps(&record.Inode{Trash: []*record.Base{{Dir: 5, Name: "other", Key: "old/other"}}}, 9, it)
	if s := steps[1].GetSettleEntry(); !s.GetGone() {
		t.Errorf("with none: %v", s)
	}
	if e := steps[0].GetEndPersist(); !e.GetTrashLast() || e.GetTrashName().GetName() != "n" || e.GetTrashName().GetDir() != 5 {
		t.Errorf("nothing refuses the steps if the name is lost before they are evaluated: %v", e)
	}
}
