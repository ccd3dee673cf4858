// Package restore brings a group that lost its disk, and began again with its neighbour's mirror, back into agreement with the other groups. The mirror is
// about a second old: what was committed after it is missing here, and other groups still name it. It promises that afterwards no name leads nowhere, no
// file shows bytes of two versions, and nothing that another group still has is given up. It does not know how the mirror came to be.
package restore

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/group"
	"github.com/objcache/objcache/server/meta"
	"github.com/objcache/objcache/server/ring"
)

// Peers asks owners of places on the ring, and groups.
type Peers interface {
	Call(ctx context.Context, hash uint64, r *rpc.Request) (*rpc.Reply, error)
	Ask(ctx context.Context, to objcache.GroupID, r *rpc.Request) (*rpc.Reply, error)
}

// Restore serves one group.
type Restore struct {
	Group  *group.Group
	Peers  Peers
	View   func() *ring.View
	Logger *slog.Logger
}

// Run brings this group, which lost its disk, into agreement with all others; it returns when that is done, or with ctx.
func (r *Restore) Run(ctx context.Context, cause string) error {
	if err := r.settled(ctx); err != nil {
		return err
	}
	var lost []group.Lost
	err := r.insist(ctx, func() (err error) {
		lost, err = r.Group.LostChunks(ctx)
		return err
	})
	if err != nil {
		return err
	}
	// A copy that had come in part contradicts itself.
	if err := r.insist(ctx, func() error { return r.compare(ctx, r.Group.ID(), cause) }); err != nil {
		return err
	}
	for _, l := range lost {
		if err := r.insist(ctx, func() error { return r.lose(ctx, l, cause) }); err != nil {
			return err
		}
	}
	for _, m := range r.View().Members {
		if m.Group == r.Group.ID() {
			continue
		}
		err := r.insist(ctx, func() error { return r.compare(ctx, m.Group, cause) })
		if err != nil {
			return err
		}
		err = r.insist(ctx, func() error {
			_, err := r.Peers.Ask(ctx, m.Group, &rpc.Request{
				Header: &rpc.Header{Internal: true},
				Op:     &rpc.Request_Compare{Compare: &rpc.CompareRequest{Group: uint32(r.Group.ID()), Cause: cause}},
			})
			return err
		})
		if err != nil {
			return err
		}
	}
	return r.Group.SetCompared()
}

// Compare compares what this group has with a group that lost its disk.
func (r *Restore) Compare(ctx context.Context, with objcache.GroupID, cause string) error {
	if err := r.settled(ctx); err != nil {
		return err
	}
	return r.compare(ctx, with, cause)
}

// settled waits until every promise of this group has its coordinator's word.
func (r *Restore) settled(ctx context.Context) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	doubts := r.Group.Doubts()
	for {
		now := r.Group.Doubts()
		maps.DeleteFunc(doubts, func(id objcache.TxID, _ bool) bool { return !now[id] })
		if len(doubts) == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ended(ctx)
		}
	}
}

func ended(ctx context.Context) error {
	return objcache.Errorf(objcache.KindOf(ctx.Err()), "restore: %w", ctx.Err())
}

// insist tries until it is done: other servers may be down, and transactions in the way. Only damaged rows end it.
func (r *Restore) insist(ctx context.Context, f func() error) error {
	pause, said := 10*time.Millisecond, time.Now()
	for {
		err := f()
		if err == nil || ctx.Err() != nil || objcache.KindOf(err) == objcache.Corrupt {
			return err
		}
		if time.Since(said) > 10*time.Second {
			said = time.Now()
			r.Logger.Warn("this group has lost its disk, and cannot be compared with all others yet", "error", err)
		}
		t := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return errors.Join(ended(ctx), err)
		}
		pause = min(2*pause, time.Second)
	}
}

// lose tells the owner of a file that bytes of it are gone.
func (r *Restore) lose(ctx context.Context, l group.Lost, cause string) error {
	reply, err := r.Peers.Call(ctx, ring.HashInode(l.Chunk.Ino), &rpc.Request{Op: &rpc.Request_Lose{Lose: &rpc.LoseRequest{
		Ino: uint64(l.Chunk.Ino), Cause: cause, Version: l.Version,
	}}})
	switch k := objcache.KindOf(err); {
	case err != nil && (k == objcache.Stale || k == objcache.NotExist):
		return r.drop(ctx, l.Chunk)
	case err != nil:
		return err
	case reply.GetLose().GetLost():
		return nil // its end drops the chunk
	}
	return r.Group.DropChunk(ctx, l.Chunk, reply.GetLose().GetPersisted())
}

// drop forgets a chunk of a file that is gone, and all before it.
func (r *Restore) drop(ctx context.Context, k objcache.ChunkKey) error {
	return r.transact(ctx, &rpc.Step{Step: &rpc.Step_CutChunks{CutChunks: &rpc.CutChunks{
		Ino: uint64(k.Ino), OldSize: k.Offset() + objcache.ChunkSize, Group: uint32(r.Group.ID()),
	}}})
}

// Have answers what this group has.
func (r *Restore) Have(ctx context.Context, q *rpc.HaveRequest) (*rpc.HaveReply, error) {
	out := &rpc.HaveReply{}
	for _, h := range q.GetItems() {
		ino := h.GetIno()
		if h.GetEntry() {
			ino = h.GetDir()
		}
		if err := r.Group.WaitDecided(ctx, meta.LockInode(ino)); err != nil {
			return nil, err
		}
		had, err := r.had(h)
		if err != nil {
			return nil, err
		}
		out.Items = append(out.Items, had)
	}
	return out, nil
}

func (r *Restore) had(h *rpc.Have) (*rpc.Had, error) {
	db := r.Group.DB()
	if h.GetEntry() {
		return entryHad(db, h)
	}
	in, err := meta.Inode(db, objcache.Ino(h.GetIno()))
	if err != nil {
		return nil, err
	}
	out := &rpc.Had{Exists: in != nil, Dead: in.GetDead(), Version: in.GetVersion()}
	for _, l := range in.GetLinks() {
		out.Linked = out.Linked || l.GetDir() == h.GetDir() && l.GetName() == h.GetName()
	}
	for _, b := range in.GetTrash() {
		out.Owes = out.Owes || b.GetDir() == h.GetDir() && b.GetName() == h.GetName()
	}
	it := in.GetIntent()
	out.Owes = out.Owes || it != nil && it.GetDir() == h.GetDir() && it.GetName() == h.GetName() || out.Dead && out.Linked
	return out, r.chunksHad(h, out)
}

func entryHad(db meta.Reader, h *rpc.Have) (*rpc.Had, error) {
	dir, err := meta.Inode(db, objcache.Ino(h.GetDir()))
	if err != nil {
		return nil, err
	}
	row, err := meta.Entry(db, objcache.Ino(h.GetDir()), h.GetName())
	if err != nil {
		return nil, err
	}
	out := &rpc.Had{Exists: dir != nil && !dir.GetDead(), EntryIno: row.GetIno()}
	for _, d := range row.GetDebts() {
		out.Owes = out.Owes || d.GetIno() == h.GetIno()
	}
	return out, nil
}

// chunksHad finds the latest version of any chunk of a file here. Rows of a file's chunks are not side by side, so its size is asked for.
func (r *Restore) chunksHad(h *rpc.Have, out *rpc.Had) error {
	if h.GetSize() <= 0 {
		return nil
	}
	for i := uint32(0); i <= objcache.ChunkOf(h.GetSize()-1); i++ {
		k := objcache.ChunkKey{Ino: objcache.Ino(h.GetIno()), Index: i}
		if !r.Group.Owns(ring.HashChunk(k)) {
			continue
		}
		c, err := meta.Chunk(r.Group.DB(), k)
		if err != nil {
			return err
		}
		out.ChunkVersion = max(out.ChunkVersion, c.GetVersion())
	}
	return nil
}

// transact runs one transaction in which the rebuilt group may take part. A Conflict that stays is returned: rows have changed since they were read, and
// the comparison begins anew.
func (r *Restore) transact(ctx context.Context, steps ...*rpc.Step) error {
	tries, start := 0, time.Now().UnixNano() // the oldest goes first
	var last error
	err := r.insist(ctx, func() error {
		_, last = r.Group.Transact(ctx, group.Tx{Header: &rpc.Header{Start: start}, Steps: steps, Restoring: true})
		switch tries++; objcache.KindOf(last) {
		case objcache.Conflict:
			if tries >= conflictsAtMost {
				return nil
			}
		case objcache.Unavailable, objcache.NotOwner:
		default:
			return nil // for the caller
		}
		return last
	})
	if err == nil {
		err = last
	}
	return err
}

// conflictsAtMost is how often a transaction that another was in the way of is tried again; about two seconds.
const conflictsAtMost = 10

func decode[M proto.Message](key, v []byte, m M) error {
	if err := proto.Unmarshal(v, m); err != nil {
		return objcache.Errorf(objcache.Corrupt, "row %x: %w", key, err)
	}
	return nil
}
