package replica

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io/fs"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"
	"github.com/objcache/objcache"
)

// The layout of a raft-wal segment: a header of 32 bytes, then batches of frames of 8 bytes plus a payload padded to 8. A batch ends in a
// commit frame with the CRC-32C of everything since the commit before it.
const (
	headerLen = 32
	frameLen  = 8
	sectorLen = 512 // no disk tears writes within it

	frameEntry  = 1
	frameIndex  = 2
	frameCommit = 3
)

// recoverLog checks every segment before raft-wal opens the log, which itself cuts the log off at the first damage it meets and never looks
// into sealed segments. It finishes what a crash left half done: it clears a batch that was torn and never acknowledged, and completes a
// rotation that had sealed the tail, without which raft-wal refuses to append for ever. Damage is Corrupt and names the file.
func recoverLog(fsys vfs.FS, dir string, meta *metaStore) error {
	state, err := meta.Load(dir)
	if err != nil {
		return err
	}
	for i, info := range state.Segments {
		path := fsys.PathJoin(dir, segment.FileName(info))
		raw, err := readFile(fsys, path)
		made := meta.made(segment.FileName(info))
		switch {
		case errors.Is(err, fs.ErrNotExist) && made:
			return objcache.Errorf(objcache.Corrupt, "raft log segment %s is missing", path)
		case errors.Is(err, fs.ErrNotExist) && info.SealTime.IsZero() && i == len(state.Segments)-1:
			return nil // the crash came before the file: raft-wal makes it
		case err != nil:
			return err
		case made && int64(len(raw)) < int64(info.SizeLimit):
			return objcache.Errorf(objcache.Corrupt, "raft log segment %s is cut to %d of %d bytes", path, len(raw), info.SizeLimit)
		}
		s := scan(raw, info)
		if !info.SealTime.IsZero() {
			if err := s.checkSealed(path, info); err != nil {
				return err
			}
			continue
		}
		if err := recoverTail(fsys, path, made, s, info, meta); err != nil {
			return err
		}
	}
	return nil
}

// recoverTail brings the last segment into a state that raft-wal continues well.
func recoverTail(fsys vfs.FS, path string, made bool, s scanned, info types.SegmentInfo, meta *metaStore) error {
	if !made {
		// Nothing was ever appended: appends begin after markMade. Start it again, whole.
		if err := fsys.Remove(path); err != nil {
			return err
		}
		return syncDir(fsys, fsys.PathDir(path))
	}
	if s.rotten() {
		return objcache.Errorf(objcache.Corrupt, "raft log segment %s is damaged in the batch at offset %d", path, s.end)
	}
	if end := s.lastByte(); end > s.end {
		f, err := fsys.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
		if err != nil {
			return err
		}
		if err = zero(f, s.end, end-s.end); err == nil {
			err = f.Sync()
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	if s.indexStart > 0 {
		return meta.finishRotation(info, s)
	}
	return nil
}

// finishRotation records that the tail is sealed and names the next one, whose file raft-wal then makes.
func (m *metaStore) finishRotation(info types.SegmentInfo, s scanned) error {
	return m.change(func(st *metaState) {
		segs := slices.Clone(st.Log.Segments)
		last := &segs[len(segs)-1]
		last.SealTime, last.MaxIndex, last.IndexStart = time.Now(), info.BaseIndex+s.entries-1, s.indexStart
		next := types.SegmentInfo{ID: st.Log.NextSegmentID, BaseIndex: last.MaxIndex + 1, MinIndex: last.MaxIndex + 1,
			SizeLimit: info.SizeLimit, Codec: info.Codec, CreateTime: last.SealTime}
		st.Log = types.PersistentState{NextSegmentID: st.Log.NextSegmentID + 1, Segments: append(segs, next)}
	})
}

func (m *metaStore) made(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Contains(m.mu.state.Made, name)
}

// scanned is what the walk over a segment's frames found.
type scanned struct {
	raw        []byte
	end        int64  // offset behind the last batch that is whole
	stop       int64  // offset of the frame at which the walk ended
	entries    uint64 // in whole batches
	indexStart uint64 // offset of the index's payload when a whole batch holds one
}

// scan walks the whole batches of a segment.
func scan(raw []byte, info types.SegmentInfo) scanned {
	s := scanned{raw: raw}
	if !validHeader(raw, info) {
		return s
	}
	var entries, index uint64
	s.stop = headerLen
	for {
		typ, size := frameAt(raw, s.stop)
		switch typ {
		case frameEntry:
			entries++
		case frameIndex:
			index = uint64(s.stop) + frameLen
		case frameCommit:
			if !batchMatches(raw, s.end, s.stop) {
				return s
			}
			s.end, s.entries, s.indexStart = s.stop+frameLen, s.entries+entries, index
			entries = 0
		default:
			return s
		}
		s.stop += size
	}
}

// checkSealed wants every entry that the metadata promises, and the index in the place where it is looked for.
func (s scanned) checkSealed(path string, info types.SegmentInfo) error {
	if info.BaseIndex+s.entries <= info.MaxIndex || info.IndexStart != 0 && info.IndexStart != s.indexStart {
		return objcache.Errorf(objcache.Corrupt, "raft log segment %s is damaged in the batch at offset %d: it ends at entry %d, not %d",
			path, s.end, info.BaseIndex+s.entries-1, info.MaxIndex)
	}
	return nil
}

// rotten tells damage from a batch that a crash tore. A torn batch is the last one and lacks a sector (the file was zero before) or its
// commit frame; whatever is there in full was acknowledged, or may have been.
func (s scanned) rotten() bool {
	end := s.lastByte()
	if end <= s.end {
		return false
	}
	if s.batchBehind(end) {
		return true
	}
	for at := s.end; at < end; {
		next := min(end, at/sectorLen*sectorLen+sectorLen)
		if allZero(s.raw[at:next]) {
			return false
		}
		at = next
	}
	typ, _ := frameAt(s.raw, end-frameLen)
	return typ == frameCommit || s.stop == end-frameLen
}

// batchBehind reports whether a whole batch follows some commit frame behind the damage.
func (s scanned) batchBehind(end int64) bool {
	for at := s.end + frameLen; at < end; at += frameLen {
		if typ, _ := frameAt(s.raw, at-frameLen); typ != frameCommit {
			continue
		}
		for p := at; p < end; {
			typ, size := frameAt(s.raw, p)
			if typ == 0 || typ == frameCommit {
				if typ == frameCommit && p > at && batchMatches(s.raw, at, p) {
					return true
				}
				break
			}
			p += size
		}
	}
	return false
}

// lastByte is the offset behind the last byte that is not zero, rounded up to a frame's alignment.
func (s scanned) lastByte() int64 {
	n := int64(len(bytes.TrimRight(s.raw, "\x00")))
	return min(int64(len(s.raw)), (n+frameLen-1)/frameLen*frameLen)
}

func validHeader(raw []byte, info types.SegmentInfo) bool {
	const magic = 0x58eb6b0d
	return len(raw) >= headerLen && binary.LittleEndian.Uint64(raw) == magic &&
		binary.LittleEndian.Uint64(raw[8:]) == info.BaseIndex && binary.LittleEndian.Uint64(raw[16:]) == info.ID &&
		binary.LittleEndian.Uint64(raw[24:]) == info.Codec
}

// frameAt returns the type and whole size in bytes of the frame at off; type 0 when there is none that fits.
func frameAt(raw []byte, off int64) (typ byte, size int64) {
	if off < 0 || off+frameLen > int64(len(raw)) {
		return 0, 0
	}
	h := raw[off : off+frameLen]
	typ, size = h[0], frameLen
	if typ < frameEntry || typ > frameCommit || h[1]|h[2]|h[3] != 0 {
		return 0, 0
	}
	if typ != frameCommit {
		n := int64(binary.LittleEndian.Uint32(h[4:]))
		size += (n + 7) &^ 7
	}
	if off+size > int64(len(raw)) {
		return 0, 0
	}
	return typ, size
}

// batchMatches verifies the batch [from, commit) against the checksum in the commit frame at commit.
func batchMatches(raw []byte, from, commit int64) bool {
	return crc32.Checksum(raw[from:commit], castagnoli) == binary.LittleEndian.Uint32(raw[commit+4:])
}

func allZero(p []byte) bool { return len(bytes.TrimLeft(p, "\x00")) == 0 }
