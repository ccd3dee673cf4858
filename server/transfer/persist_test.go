package transfer

import (
	"testing"
	"time"

	"github.com/objcache/objcache"
)

func TestPause_WhatWaitsForOthersIsTriedSoon(t *testing.T) {
	tr := &Transfer{now: time.Now}
	tr.persist.init(1)
	next := func(ino objcache.Ino) time.Duration { return time.Until(tr.persist.mu.failed[ino].next) }
	for range 20 {
		tr.noteLocked(1, waitFor(3))
		tr.noteLocked(2, waitFor(4))
		tr.noteLocked(5, objcache.Errorf(objcache.Unavailable, "external storage is down"))
	}
	if next(1) > maxWait || next(2) > maxWait || next(5) < maxPause/2 {
		t.Errorf("pauses %v and %v of waiting inodes, %v of one that failed", next(1), next(2), next(5))
	}
	tr.noteLocked(3, nil)
	if next(1) > 0 || next(2) < maxWait/2 {
		t.Errorf("after one of those waited for was persisted: %v and %v", next(1), next(2))
	}
}
