package client

import (
	"maps"
	"testing"

	"github.com/objcache/objcache"
)

func oneGroup(objcache.Ino) objcache.GroupID { return 1 }

func openFile(o *opens, ino objcache.Ino) {
	n := o.begin(1)
	o.add(ino)
	o.end(n)
}

// What servers are told to be closed never covers an open whose answer is still to come: they may know it already.
func TestOpens_AnOpenUnderWayIsNotCalledClosed(t *testing.T) {
	o := &opens{}
	o.init()
	openFile(o, 7) // number 1
	under := o.begin(1)
	o.drop(7)
	closed, before := o.takeEnded(oneGroup)
	if !maps.Equal(closed[1], map[uint64]uint32{7: 1}) || before != under {
		t.Errorf("told that %v are closed by the opens before %d, under way is %d", closed, before, under)
	}
	if _, before := o.all(oneGroup); before != under {
		t.Errorf("the renewal counts for opens before %d, under way is %d", before, under)
	}
	o.add(7)
	o.end(under)
	all, before := o.all(oneGroup)
	if !maps.Equal(all[1], map[uint64]uint32{7: 1}) || before != under+1 {
		t.Errorf("told that %v are open by the opens before %d, the last was %d", all, before, under)
	}
}

func TestOpens_OnlyTheLastDescriptorCloses(t *testing.T) {
	o := &opens{}
	o.init()
	openFile(o, 7)
	openFile(o, 7)
	o.drop(7)
	if closed, _ := o.takeEnded(oneGroup); len(closed) > 0 {
		t.Errorf("told that %v are closed, one descriptor is left", closed)
	}
	o.drop(7)
	openFile(o, 7)
	if closed, _ := o.takeEnded(oneGroup); len(closed) > 0 {
		t.Errorf("told that %v are closed, it was opened again", closed)
	}
	o.drop(7)
	if closed, _ := o.takeEnded(oneGroup); len(closed[1]) != 1 {
		t.Errorf("told that %v are closed", closed)
	}
	if all, _ := o.all(oneGroup); all[1] == nil || len(all[1]) > 0 {
		t.Errorf("the renewal names %v, should name nothing, and say so", all)
	}
}
