package group

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
)

// destroy takes a group's disk away and begins it again with some of its former rows.
func (w *world) destroy(id objcache.GroupID, keep func(key []byte) bool) {
	w.t.Helper()
	m := w.groups[id]
	former := w.group(id).Incarnation()
	var rows [][2][]byte
	it, err := w.group(id).DB().NewIter(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	for ok := it.First(); ok; ok = it.Next() {
		if it.Key()[0] != 'L' && keep(it.Key()) {
			rows = append(rows, [2][]byte{append([]byte{}, it.Key()...), append([]byte{}, it.Value()...)})
		}
	}
	if err := it.Close(); err != nil {
		w.t.Fatal(err)
	}
	w.down(id)
	m.fs, m.log, m.bytes = vfs.NewMem(), &memoryLog{}, &memoryBytes{live: map[uint64][]byte{}}
	db, err := pebble.Open("", &pebble.Options{FS: m.fs, DisableWAL: true, Logger: quiet{}})
	if err != nil {
		w.t.Fatal(err)
	}
	err = Install(db, &record.Rebuilt{At: 1, Taken: 1, Term: 1000, Former: []string{former}}, func() (k, v []byte, err error) {
		if len(rows) == 0 {
			return nil, nil, nil
		}
		k, v, rows = rows[0][0], rows[0][1], rows[1:]
		return k, v, nil
	})
	if err := errors.Join(err, db.Close()); err != nil {
		w.t.Fatal(err)
	}
}

func nothing([]byte) bool { return false }

// The coordinator loses its disk when one of two participants has been told of the commit: the other hears of it all the same.
func TestRebuilt_WhatASurvivorWasToldIsDecidedForAll(t *testing.T) {
	for name, told := range map[string]objcache.GroupID{"nobody was told": 0, "group 2 was told": 2} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 3)
			a, b, c := w.ino(1, 0), w.ino(2, 0), w.ino(3, 0)
			w.losing(func(kind string, to objcache.GroupID) (bool, bool) {
				return kind == "query" || kind == "decide" && to != told, false
			})
			if err := w.put(7, 1, a, b, c); err != nil {
				t.Fatal(err)
			}
			if told != 0 {
				w.eventually("group 2 has been told", func() bool { return w.has(2, b) })
			}
			w.destroy(1, nothing)
			w.up(1)
			w.losing(nil)
			w.eventually("nobody is in doubt", func() bool { return w.nothingPrepared(2) && w.nothingPrepared(3) })
			if w.has(2, b) != (told != 0) || w.has(3, c) != (told != 0) {
				t.Errorf("group 2 committed: %v, group 3: %v", w.has(2, b), w.has(3, c))
			}
		})
	}
}

// A decision that the copy has is told on.
func TestRebuilt_ADecisionInTheCopyStands(t *testing.T) {
	w := newWorld(t, 2)
	a, b := w.ino(1, 0), w.ino(2, 0)
	w.losing(func(kind string, _ objcache.GroupID) (bool, bool) { return kind == "query" || kind == "decide", false })
	if err := w.put(7, 1, a, b); err != nil {
		t.Fatal(err)
	}
	w.destroy(1, func([]byte) bool { return true })
	w.losing(nil)
	w.up(1)
	w.eventually("group 2 has been told", func() bool { return w.has(2, b) })
	if !w.has(1, a) {
		t.Error("the coordinator's own half is not in the copy")
	}
}

func TestRebuilt_BeginsFarBehindAllNumbersAndTakesPartOnlyOnceItIsCompared(t *testing.T) {
	w := newWorld(t, 2)
	before, err := w.group(2).AllocateIno(false)
	if err != nil {
		t.Fatal(err)
	}
	w.destroy(2, func([]byte) bool { return true })
	w.up(2)
	g := w.group(2)
	after, err := g.AllocateIno(false)
	if err != nil {
		t.Fatal(err)
	}
	if after < before+1<<leapBits {
		t.Errorf("inode numbers go on at %d, %d had been given away", after, before)
	}
	again := &record.Allocation{}
	if _, err := meta.Get(g.DB(), meta.AllocationKey(), again); err != nil || again.GetNextExtent() < 1<<leapBits {
		t.Errorf("extent numbers go on at %d: %v", again.GetNextExtent(), err)
	}
	id, err := g.NewTx()
	if err != nil || id.TxSeq>>40 < 1000 {
		t.Errorf("transaction numbers go on at %x: %v", id.TxSeq, err)
	}
	if err := w.put(7, 1, w.ino(1, 0), w.ino(2, 0)); !errors.Is(err, objcache.Unavailable) || !g.Comparing() {
		t.Errorf("a transaction before the comparison: %v", err)
	}
	if err := g.SetCompared(); err != nil {
		t.Fatal(err)
	}
	if err := w.put(7, 2, w.ino(1, 0), w.ino(2, 0)); err != nil {
		t.Errorf("after it: %v", err)
	}
	w.eventually("settled", w.settled)
	w.down(2)
	w.up(2)
	if w.group(2).Comparing() {
		t.Error("compared again after a restart")
	}
}
