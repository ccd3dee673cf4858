package fuse

import (
	"testing"

	"github.com/objcache/objcache"
)

func TestReadahead_WindowGrowsInSequenceAndBecomesTheWholeFile(t *testing.T) {
	var a readahead
	var windows []int64
	for i := int64(0); i < 9; i++ {
		start, end := a.next(i, i+1, 1000)
		if start != i+1 && start != end {
			t.Errorf("region %d: window starts at %d", i, start)
		}
		windows = append(windows, end-start)
	}
	want := []int64{2, 4, 8, 16, 32, 32, 32, 992, 0}
	for i := range want {
		if windows[i] != want[i] {
			t.Fatalf("windows %v, want %v", windows, want)
		}
	}
	if !a.whole {
		t.Error("a sequential reader does not get the whole file")
	}
}

func TestReadahead_RandomReadsOfALargeFileFetchNothingElse(t *testing.T) {
	var a readahead
	for _, r := range []int64{500, 3, 77, 901, 250, 640} {
		if start, end := a.next(r, r+1, 1000); start < end && end-start > 2 {
			t.Errorf("region %d: [%d, %d)", r, start, end)
		}
	}
	if a.whole {
		t.Error("six regions of a thousand mean the whole file")
	}
}

func TestReadahead_DenseTouchesMeanAMappedFile(t *testing.T) {
	var a readahead
	for _, r := range []int64{9, 2, 14, 6} {
		a.next(r, r+1, 16)
	}
	if !a.whole {
		t.Error("a quarter of the file in any order does not mean all of it")
	}
}

func TestStream_OffersWholeUnitsThatASequentialWriterHasPassed(t *testing.T) {
	var s stream
	var passed []objcache.Range
	const step = 1 << 20
	for off := int64(0); off < 11*step; off += step {
		if p := s.advance(objcache.Range{Off: off, Len: step}); p.Len > 0 {
			passed = append(passed, p)
		}
	}
	if len(passed) != 2 || passed[0] != (objcache.Range{Off: 0, Len: stageUnit}) || passed[1] != (objcache.Range{Off: stageUnit, Len: stageUnit}) {
		t.Errorf("passed %v", passed)
	}
	if p := s.advance(objcache.Range{Off: 100, Len: 5000}); p.Len != 0 {
		t.Errorf("a jump back passes %v", p)
	}
	if p := s.advance(objcache.Range{Off: 5100, Len: stageUnit}); p.Len != 0 {
		t.Errorf("a unit whose beginning was not written in sequence is passed: %v", p)
	}
	if p := s.advance(objcache.Range{Off: 5100 + stageUnit, Len: stageUnit}); p != (objcache.Range{Off: stageUnit, Len: stageUnit}) {
		t.Errorf("the next unit: %v", p)
	}
}
