package fsck

import (
	"context"
	"testing"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
)

// remote is an inode that another group owns than the directory.
func (w *world) remote() objcache.Ino {
	for ino := noIno; ; ino++ {
		if w.view.OwnerOfInode(ino) != w.view.OwnerOfInode(dirIno) {
			return ino
		}
	}
}

// dangle makes a name whose inode, of another group, is not there.
func (w *world) dangle(change uint64) {
	w.put(0, meta.EntryKey(dirIno, "new"), &record.DirEntry{Ino: uint64(w.remote()), Mode: objcache.ModeRegular, Cookie: 4, Changed: change})
	w.set(0, meta.CookieKey(dirIno, 4), []byte("new"))
	w.changeInode(dirIno, func(in *record.Inode) { in.Dir.Children = 4 })
}

func (w *world) running(t *testing.T, rounds int, before func(round int)) ([]Finding, int) {
	t.Helper()
	round := 0
	r, unsure, err := Running(t.Context(), func(context.Context) (Cluster, error) {
		before(round)
		round++
		return w.in, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if round != rounds {
		t.Errorf("%d rounds, want %d", round, rounds)
	}
	return r.Findings, unsure
}

func TestRunning_DamageIsSeenTwiceBeforeItCounts(t *testing.T) {
	w := newWorld(t)
	w.dangle(1)
	if found, unsure := w.running(t, 2, func(int) {}); len(found) != 1 || found[0].Code != entryDangling || unsure != 0 {
		t.Errorf("found %+v, %d unsure", found, unsure)
	}
}

func TestRunning_WhatOneGroupSaysCountsAtOnce(t *testing.T) {
	w := newWorld(t)
	w.changeInode(dirIno, func(in *record.Inode) { in.Dir.Children = 9 })
	if found, _ := w.running(t, 1, func(int) {}); len(found) != 1 || found[0].Code != childCount {
		t.Errorf("found %+v", found)
	}
}

func TestRunning_RowsReadAtDifferentMomentsAreNoDamage(t *testing.T) {
	w := newWorld(t)
	found, unsure := w.running(t, 2, func(round int) {
		if round == 0 {
			w.dangle(1)
			return
		}
		w.inode(&record.Inode{Ino: uint64(w.remote()), Mode: objcache.ModeRegular, Nlink: 1, Links: []*record.Link{{Dir: uint64(dirIno), Name: "new", Key: "d/new"}}})
	})
	if len(found) != 0 || unsure != 0 {
		t.Errorf("found %+v, %d unsure", found, unsure)
	}
}

func TestRunning_WhatChangesAllTheTimeIsSaidToBeUnsure(t *testing.T) {
	w := newWorld(t)
	found, unsure := w.running(t, maxRounds, func(round int) { w.dangle(uint64(round)) })
	if len(found) != 0 || unsure != 1 {
		t.Errorf("found %+v, %d unsure", found, unsure)
	}
}

// TestRunning_WaitsForTheDecision: the row may be made by a transaction whose coordinator was read before it decided.
func TestRunning_WaitsForTheDecision(t *testing.T) {
	w := newWorld(t)
	w.dangle(1)
	ino, tx := w.remote(), &record.TxID{Client: 1}
	w.put(w.view.OwnerOfInode(ino), meta.PreparedKey(tx), &record.Prepared{Tx: tx, Coordinator: 1, Rows: []*record.Row{{Key: meta.InodeKey(ino), Value: []byte{}}}})
	if found, unsure := w.running(t, maxRounds, func(int) {}); len(found) != 0 || unsure != 1 {
		t.Errorf("found %+v, %d unsure", found, unsure)
	}
}
