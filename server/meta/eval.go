package meta

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"google.golang.org/protobuf/proto"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/record"
)

// Facts are what a leader knows beyond the rows when it evaluates a step. Its answers become effects, so replicas need not know them.
type Facts interface {
	// HasOpen reports whether some session has the inode open (or whether nobody knows yet).
	HasOpen(ino objcache.Ino) bool
	// Listing reports whether a listing of the directory is under way.
	Listing(dir objcache.Ino) bool
	// Staged returns the extents a client staged for a chunk with stageSeq first..last, in that order, with their places; false when some are not here.
	Staged(client objcache.ClientID, k objcache.ChunkKey, first, last uint64) ([]*record.Extent, []*record.Placed, bool)
	// Owns reports whether the group owns a chunk.
	Owns(k objcache.ChunkKey) bool
	// Now is the leader's clock, ns.
	Now() int64
	// NextExtent numbers a new extent.
	NextExtent() uint64
}

// Eval evaluates the steps of one transaction at one group: each sees the effects of those before it. It is used by one goroutine, under the
// locks of Keys, and then thrown away.
type Eval struct {
	b       *pebble.Batch // indexed: reads see its own writes
	facts   Facts
	applied uint64
	dropped []*record.Dropped
	placed  []*record.Placed
	cleaned []*record.Cleaned
}

// NewEval begins an evaluation on an indexed batch over the group's rows; applied is the index of the last log entry they hold.
func NewEval(b *pebble.Batch, applied uint64, facts Facts) *Eval {
	return &Eval{b: b, facts: facts, applied: applied}
}

// Reader reads the rows with the effects so far.
func (e *Eval) Reader() Reader { return e.b }

// Effects are what the steps did. Rows are in the order of their changes.
type Effects struct {
	Rows    []*record.Row
	Placed  []*record.Placed
	Dropped []*record.Dropped
	Cleaned []*record.Cleaned
}

// Effects returns what the steps did so far.
func (e *Eval) Effects() (Effects, error) {
	fx := Effects{Placed: e.placed, Dropped: e.dropped, Cleaned: e.cleaned}
	r := e.b.Reader()
	for {
		kind, k, v, ok, err := r.Next()
		if err != nil {
			return Effects{}, fmt.Errorf("read effects: %w", err)
		}
		if !ok {
			return fx, nil
		}
		row := &record.Row{Key: append([]byte(nil), k...)}
		if kind == pebble.InternalKeyKindSet {
			row.Value = append([]byte{}, v...)
		}
		fx.Rows = append(fx.Rows, row)
	}
}

// Place adds the place of an extent that the caller has written.
func (e *Eval) Place(p ...*record.Placed) { e.placed = append(e.placed, p...) }

// Put sets a row.
func (e *Eval) Put(key []byte, m proto.Message) error {
	v, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode row %x: %w", key, err)
	}
	return e.b.Set(key, v, nil)
}

// Delete removes a row.
func (e *Eval) Delete(key []byte) error { return e.b.Delete(key, nil) }

// Step evaluates one step. An error of a Kind refuses the whole transaction.
func (e *Eval) Step(s *rpc.Step) ([]byte, error) {
	switch x := s.GetStep().(type) {
	case *rpc.Step_AddEntry:
		return nil, e.addEntry(x.AddEntry)
	case *rpc.Step_RemoveEntry:
		return nil, e.removeEntry(x.RemoveEntry)
	case *rpc.Step_PutInode:
		return nil, e.putInode(x.PutInode)
	case *rpc.Step_Relink:
		return nil, e.relink(x.Relink)
	case *rpc.Step_KillDir:
		return nil, e.killDir(x.KillDir)
	case *rpc.Step_SetInode:
		return nil, e.setInode(x.SetInode)
	case *rpc.Step_FlushInode:
		return nil, e.flushInode(x.FlushInode)
	case *rpc.Step_CommitChunk:
		return nil, e.commitChunk(x.CommitChunk)
	case *rpc.Step_CutChunks:
		return nil, e.cutChunks(x.CutChunks)
	case *rpc.Step_BeginPersist:
		return nil, e.beginPersist(x.BeginPersist)
	case *rpc.Step_PinChunk:
		return nil, e.pinChunk(x.PinChunk)
	case *rpc.Step_EndPersist:
		return nil, e.endPersist(x.EndPersist)
	case *rpc.Step_UnpinChunk:
		return nil, e.unpinChunk(x.UnpinChunk)
	case *rpc.Step_SettleEntry:
		return nil, e.settleEntry(x.SettleEntry)
	case *rpc.Step_ClaimEntry:
		return nil, e.claimEntry(x.ClaimEntry)
	case *rpc.Step_MergePage:
		return nil, e.mergePage(x.MergePage)
	case *rpc.Step_RefreshBase:
		return nil, e.refreshBase(x.RefreshBase)
	case *rpc.Step_Forget:
		return nil, e.forget(x.Forget)
	case *rpc.Step_CheckParent:
		return nil, e.checkParent(x.CheckParent)
	case *rpc.Step_VanishDir:
		return nil, e.vanishDir(x.VanishDir)
	case *rpc.Step_SetLock:
		return nil, e.setLock(x.SetLock)
	case *rpc.Step_LoseInode:
		return nil, e.loseInode(x.LoseInode)
	case *rpc.Step_RevertInode:
		return nil, e.revertInode(x.RevertInode)
	case *rpc.Step_RevertEntry:
		return nil, e.revertEntry(x.RevertEntry)
	case *rpc.Step_OweEntry:
		return nil, e.oweEntry(x.OweEntry)
	case *rpc.Step_RepairRows:
		return nil, e.repairRows(x.RepairRows)
	}
	return nil, objcache.Errorf(objcache.NotSupported, "step %T", s.GetStep())
}

// inode reads an inode that must be there and have a name, or be open.
func (e *Eval) inode(ino uint64) (*record.Inode, error) {
	in, err := Inode(e.b, objcache.Ino(ino))
	if err != nil {
		return nil, err
	}
	if in == nil || in.GetDead() {
		return nil, objcache.Errorf(objcache.NotExist, "inode %d", ino)
	}
	return in, nil
}

func (e *Eval) directory(ino uint64) (*record.Inode, error) {
	in, err := e.inode(ino)
	if err != nil {
		return nil, err
	}
	if in.GetMode()&objcache.ModeMask != objcache.ModeDir {
		return nil, objcache.Errorf(objcache.NotDir, "inode %d", ino)
	}
	return in, nil
}

// putOwing writes an inode and keeps the index of those that owe external storage something. since is the leader's clock, used when the debt is new.
func (e *Eval) putOwing(in *record.Inode, since int64) error {
	owes := Owes(in)
	switch {
	case owes && in.GetDirtySince() == 0:
		in.DirtySince = max(since, 1)
		if err := e.b.Set(DirtyKey(in.GetDirtySince(), objcache.Ino(in.GetIno())), nil, nil); err != nil {
			return err
		}
	case !owes && in.GetDirtySince() != 0:
		if err := e.Delete(DirtyKey(in.GetDirtySince(), objcache.Ino(in.GetIno()))); err != nil {
			return err
		}
		in.DirtySince = 0
	}
	return e.Put(InodeKey(objcache.Ino(in.GetIno())), in)
}

func (e *Eval) deleteInode(in *record.Inode) error {
	if in.GetDirtySince() != 0 {
		if err := e.Delete(DirtyKey(in.GetDirtySince(), objcache.Ino(in.GetIno()))); err != nil {
			return err
		}
	}
	return e.Delete(InodeKey(objcache.Ino(in.GetIno())))
}

// Owes reports whether external storage does not yet hold what the namespace says of the inode.
func Owes(in *record.Inode) bool {
	return in.GetLost() != "" || in.GetDirty() || in.GetAttrDirty() || in.GetDead() || in.GetIntent() != nil || len(in.GetTrash()) > 0 ||
		in.GetOrphan() || in.GetDir().GetMoving() || in.GetDir().GetDetour() != "" || in.GetDir().GetTableChanges() != in.GetDir().GetTableWritten()
}
