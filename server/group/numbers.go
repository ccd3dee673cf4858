package group

import (
	"fmt"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/record"
	"github.com/objcache/objcache/server/ring"
)

// numberBlock is how many inode and extent numbers one log entry reserves.
const numberBlock = 1 << 20

// An inode number is epoch (16 bits), group (14 bits), counter (34 bits): never used again, and made without asking anybody.
const (
	counterBits = 34
	groupBits   = 14
)

// numbers hands out inode and extent numbers of reserved blocks. What a crash leaves unused of a block is never used.
type numbers struct {
	g  *Group
	mu struct {
		sync.Mutex
		ino, inoEnd       uint64
		extent, extentEnd uint64
	}
}

// open reserves the first blocks of this start.
func (n *numbers) open(g *Group) error {
	n.g = g
	a := &record.Allocation{}
	if _, err := meta.Get(g.db, meta.AllocationKey(), a); err != nil {
		return err
	}
	n.mu.ino, n.mu.inoEnd = a.GetNextIno(), a.GetNextIno()
	n.mu.extent, n.mu.extentEnd = max(1, a.GetNextExtent()), max(1, a.GetNextExtent())
	return n.reserveLocked()
}

func (n *numbers) reserveLocked() error {
	next := &record.Allocation{NextIno: n.mu.inoEnd, NextExtent: n.mu.extentEnd}
	if n.mu.ino == n.mu.inoEnd {
		next.NextIno += numberBlock
	}
	if n.mu.extent == n.mu.extentEnd {
		next.NextExtent += numberBlock
	}
	v, err := proto.Marshal(next)
	if err != nil {
		return fmt.Errorf("encode allocation: %w", err)
	}
	en := n.g.basis().entry(record.Entry_EFFECTS, objcache.TxID{})
	en.Rows = []*record.Row{{Key: meta.AllocationKey(), Value: v}}
	if err := n.g.propose(en); err != nil {
		return fmt.Errorf("reserve numbers: %w", err)
	}
	n.mu.inoEnd, n.mu.extentEnd = next.GetNextIno(), next.GetNextExtent()
	return nil
}

func (n *numbers) extent() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	for n.mu.extent == n.mu.extentEnd {
		if err := n.reserveLocked(); err != nil {
			n.g.logger.Warn("extent numbers not reserved, trying again", "error", err)
		}
		if n.g.ctx.Err() != nil {
			return 0 // the evaluation that asks cannot be logged any more
		}
	}
	n.mu.extent++
	return n.mu.extent - 1
}

// AllocateIno returns a fresh inode number. With here it hashes to this group, so that a small file and its directory are one append.
func (g *Group) AllocateIno(here bool) (objcache.Ino, error) {
	v := g.cfg.View()
	n := &g.numbers
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		if n.mu.ino == n.mu.inoEnd {
			if err := n.reserveLocked(); err != nil {
				return 0, err
			}
		}
		if n.mu.ino >= 1<<counterBits {
			return 0, objcache.Errorf(objcache.NoSpace, "group %d has given away all its inode numbers", g.id)
		}
		ino := objcache.Ino(v.Version.Epoch<<(counterBits+groupBits) | uint64(g.id)<<counterBits | n.mu.ino)
		n.mu.ino++
		if !here || v.Owner(ring.HashInode(ino)) == g.id {
			return ino, nil
		}
	}
}
