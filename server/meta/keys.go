package meta

import (
	"encoding/binary"
	"slices"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/api/rpc"
	"github.com/objcache/objcache/server/record"
	"github.com/objcache/objcache/server/ring"
)

// LockInode is the lock of an inode's row, and of the entries of a directory.
func LockInode(ino uint64) string { return string(binary.BigEndian.AppendUint64([]byte{'i'}, ino)) }

// LockChunks is the lock of all chunks of a file in one group.
func LockChunks(ino uint64) string { return string(binary.BigEndian.AppendUint64([]byte{'c'}, ino)) }

// Keys returns the locks under which steps are evaluated, sorted and without repetition.
func Keys(steps []*rpc.Step) []string {
	keys := make([]string, 0, len(steps))
	for _, s := range steps {
		keys = append(keys, lock(s))
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

func lock(s *rpc.Step) string {
	switch x := s.GetStep().(type) {
	case *rpc.Step_AddEntry:
		return LockInode(x.AddEntry.GetDir())
	case *rpc.Step_RemoveEntry:
		return LockInode(x.RemoveEntry.GetDir())
	case *rpc.Step_PutInode:
		return LockInode(inoOf(x.PutInode))
	case *rpc.Step_Relink:
		return LockInode(x.Relink.GetIno())
	case *rpc.Step_KillDir:
		return LockInode(x.KillDir.GetIno())
	case *rpc.Step_SetInode:
		return LockInode(x.SetInode.GetIno())
	case *rpc.Step_FlushInode:
		return LockInode(x.FlushInode.GetIno())
	case *rpc.Step_CommitChunk:
		return LockChunks(x.CommitChunk.GetIno())
	case *rpc.Step_CutChunks:
		return LockChunks(x.CutChunks.GetIno())
	case *rpc.Step_BeginPersist:
		return LockInode(x.BeginPersist.GetIno())
	case *rpc.Step_PinChunk:
		return LockChunks(x.PinChunk.GetIno())
	case *rpc.Step_EndPersist:
		return LockInode(x.EndPersist.GetIno())
	case *rpc.Step_UnpinChunk:
		return LockChunks(x.UnpinChunk.GetIno())
	case *rpc.Step_SettleEntry:
		return LockInode(x.SettleEntry.GetDir())
	case *rpc.Step_ClaimEntry:
		return LockInode(x.ClaimEntry.GetDir())
	case *rpc.Step_MergePage:
		return LockInode(x.MergePage.GetDir())
	case *rpc.Step_RefreshBase:
		return LockInode(x.RefreshBase.GetIno())
	case *rpc.Step_Forget:
		return LockInode(x.Forget.GetIno())
	case *rpc.Step_CheckParent:
		return LockInode(x.CheckParent.GetIno())
	case *rpc.Step_VanishDir:
		return LockInode(x.VanishDir.GetIno())
	case *rpc.Step_SetLock:
		return LockFileLocks(x.SetLock.GetIno())
	case *rpc.Step_LoseInode:
		return LockInode(x.LoseInode.GetIno())
	case *rpc.Step_RevertInode:
		return LockInode(x.RevertInode.GetIno())
	case *rpc.Step_RevertEntry:
		return LockInode(x.RevertEntry.GetDir())
	case *rpc.Step_OweEntry:
		return LockInode(x.OweEntry.GetDir())
	case *rpc.Step_RepairRows:
		return lockOfRepair(x.RepairRows)
	}
	return "" // Step refuses it
}

// Owner returns the group that evaluates a step under a view.
func Owner(v *ring.View, s *rpc.Step) objcache.GroupID {
	chunk := func(ino uint64, i uint32) objcache.GroupID {
		return v.OwnerOfChunk(objcache.ChunkKey{Ino: objcache.Ino(ino), Index: i})
	}
	inode := func(ino uint64) objcache.GroupID { return v.OwnerOfInode(objcache.Ino(ino)) }
	switch x := s.GetStep().(type) {
	case *rpc.Step_AddEntry:
		return inode(x.AddEntry.GetDir())
	case *rpc.Step_RemoveEntry:
		return inode(x.RemoveEntry.GetDir())
	case *rpc.Step_PutInode:
		return inode(inoOf(x.PutInode))
	case *rpc.Step_Relink:
		return inode(x.Relink.GetIno())
	case *rpc.Step_KillDir:
		return inode(x.KillDir.GetIno())
	case *rpc.Step_SetInode:
		return inode(x.SetInode.GetIno())
	case *rpc.Step_FlushInode:
		return inode(x.FlushInode.GetIno())
	case *rpc.Step_CommitChunk:
		return chunk(x.CommitChunk.GetIno(), x.CommitChunk.GetChunk())
	case *rpc.Step_CutChunks:
		return objcache.GroupID(x.CutChunks.GetGroup())
	case *rpc.Step_BeginPersist:
		return inode(x.BeginPersist.GetIno())
	case *rpc.Step_PinChunk:
		return chunk(x.PinChunk.GetIno(), x.PinChunk.GetChunk())
	case *rpc.Step_EndPersist:
		return inode(x.EndPersist.GetIno())
	case *rpc.Step_UnpinChunk:
		return chunk(x.UnpinChunk.GetIno(), x.UnpinChunk.GetChunk())
	case *rpc.Step_SettleEntry:
		return inode(x.SettleEntry.GetDir())
	case *rpc.Step_ClaimEntry:
		return inode(x.ClaimEntry.GetDir())
	case *rpc.Step_MergePage:
		return inode(x.MergePage.GetDir())
	case *rpc.Step_RefreshBase:
		return inode(x.RefreshBase.GetIno())
	case *rpc.Step_Forget:
		return inode(x.Forget.GetIno())
	case *rpc.Step_CheckParent:
		return inode(x.CheckParent.GetIno())
	case *rpc.Step_VanishDir:
		return inode(x.VanishDir.GetIno())
	case *rpc.Step_SetLock:
		return inode(x.SetLock.GetIno())
	case *rpc.Step_LoseInode:
		return inode(x.LoseInode.GetIno())
	case *rpc.Step_RevertInode:
		return inode(x.RevertInode.GetIno())
	case *rpc.Step_RevertEntry:
		return inode(x.RevertEntry.GetDir())
	case *rpc.Step_OweEntry:
		return inode(x.OweEntry.GetDir())
	case *rpc.Step_RepairRows:
		return objcache.GroupID(x.RepairRows.GetGroup())
	}
	return 0 // Step refuses it
}

func inoOf(p *rpc.PutInode) uint64 {
	in, err := DecodeInode(p.GetInode())
	if err != nil {
		return 0
	}
	return in.GetIno()
}

// DecodeInode parses a record.Inode that travelled in a message. Invalid when it does not parse.
func DecodeInode(b []byte) (*record.Inode, error) {
	in := &record.Inode{}
	return in, decode(b, in)
}
