package replica

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"

	"github.com/objcache/objcache"
)

// Inspection is what Inspect found in the files of a log that nobody has open.
type Inspection struct {
	First, Last uint64   // entries that are there; Last 0: none
	Marker      uint64   // entries up to here may have been dropped
	Durable     uint64   // the state machine has said that it holds everything up to here by itself
	Damages     []string // what keeps the log from being opened, by file
	Strays      []string // segments that the log does not name
}

// Inspect reads the log in dir, of a group of one replica, and changes nothing: f gets every entry of the state machine behind after, in order. Whatever was
// acknowledged is among them; entries of a batch that a crash tore are not. Once it has met damage it calls f no more. The error is f's, or of reading files.
func Inspect(fsys vfs.FS, dir string, after uint64, f func(index, term uint64, data []byte)) (in Inspection, err error) {
	meta, err := openMeta(fsys, dir, &failStop{})
	if errors.Is(err, fs.ErrNotExist) {
		return in, nil // the crash came before the directory
	}
	if err != nil {
		return in.damaged(err)
	}
	mark, err := (&snapshotStore{fs: fsys, path: fsys.PathJoin(dir, snapshotName)}).read()
	if err != nil {
		return in.damaged(err)
	}
	in.Durable, in.Marker = mark.Applied, mark.Raft.Index
	state, err := meta.Load(dir)
	if err != nil {
		return in, err
	}
	if err := in.strays(fsys, dir, state); err != nil {
		return in, err
	}
	for i, info := range state.Segments {
		s, err := inspectSegment(fsys, dir, meta, info, i == len(state.Segments)-1)
		if errors.Is(err, objcache.Corrupt) {
			in.Damages = append(in.Damages, err.Error())
			continue
		}
		if err != nil {
			return in, err
		}
		if len(in.Damages) > 0 {
			continue
		}
		if err := in.entries(s, info, after, f); err != nil {
			in.Damages = append(in.Damages, fmt.Sprintf("raft log segment %s: %v", fsys.PathJoin(dir, segment.FileName(info)), err))
		}
	}
	if in.First > mark.Raft.Index+1 {
		in.Damages = append(in.Damages, fmt.Sprintf("%s: the log begins at entry %d, the marker is at %d", dir, in.First, mark.Raft.Index))
	}
	return in, nil
}

// damaged keeps damage for the report and passes other errors on.
func (in Inspection) damaged(err error) (Inspection, error) {
	if !errors.Is(err, objcache.Corrupt) {
		return in, err
	}
	in.Damages = append(in.Damages, err.Error())
	return in, nil
}

func (in *Inspection) strays(fsys vfs.FS, dir string, state types.PersistentState) error {
	names, err := fsys.List(dir)
	if err != nil {
		return err
	}
	for _, n := range names {
		known := slices.ContainsFunc(state.Segments, func(i types.SegmentInfo) bool { return segment.FileName(i) == n })
		if strings.HasSuffix(n, ".wal") && !known {
			in.Strays = append(in.Strays, n)
		}
	}
	slices.Sort(in.Strays)
	return nil
}

// inspectSegment reads a segment as recoverLog would, which may repair a torn end. A tail that was never made is empty.
func inspectSegment(fsys vfs.FS, dir string, meta *metaStore, info types.SegmentInfo, last bool) (scanned, error) {
	name := segment.FileName(info)
	path := fsys.PathJoin(dir, name)
	raw, err := readFile(fsys, path)
	made := meta.made(name)
	switch {
	case errors.Is(err, fs.ErrNotExist) && made:
		return scanned{}, objcache.Errorf(objcache.Corrupt, "raft log segment %s is missing", path)
	case errors.Is(err, fs.ErrNotExist) && info.SealTime.IsZero() && last:
		return scanned{}, nil
	case err != nil:
		return scanned{}, err
	case made && int64(len(raw)) < int64(info.SizeLimit):
		return scanned{}, objcache.Errorf(objcache.Corrupt, "raft log segment %s is cut to %d of %d bytes", path, len(raw), info.SizeLimit)
	}
	s := scan(raw, info)
	switch {
	case !info.SealTime.IsZero():
		return s, s.checkSealed(path, info)
	case made && s.rotten():
		return s, objcache.Errorf(objcache.Corrupt, "raft log segment %s is damaged in the batch at offset %d", path, s.end)
	}
	return s, nil
}

// entries hands out the entries of a segment's whole batches.
func (in *Inspection) entries(s scanned, info types.SegmentInfo, after uint64, f func(index, term uint64, data []byte)) error {
	index := info.BaseIndex
	for at := int64(headerLen); at < s.end; {
		typ, size := frameAt(s.raw, at)
		if typ == 0 {
			return objcache.Errorf(objcache.Corrupt, "no frame at offset %d", at)
		}
		if typ == frameEntry {
			n := int64(binary.LittleEndian.Uint32(s.raw[at+4:]))
			if err := in.entry(s.raw[at+frameLen:at+frameLen+n], index, info, after, f); err != nil {
				return err
			}
			index++
		}
		at += size
	}
	return nil
}

func (in *Inspection) entry(raw []byte, index uint64, info types.SegmentInfo, after uint64, f func(index, term uint64, data []byte)) error {
	if index < info.MinIndex || info.MaxIndex > 0 && index > info.MaxIndex {
		return nil // cut off
	}
	e := &raft.Log{}
	if err := (&wal.BinaryCodec{}).Decode(raw, e); err != nil {
		return objcache.Errorf(objcache.Corrupt, "entry %d: %w", index, err)
	}
	if e.Index != index || !bytes.Equal(e.Extensions, checksum(e)) {
		return objcache.Errorf(objcache.Corrupt, "entry %d does not match its checksum", index)
	}
	if in.First == 0 {
		in.First = index
	}
	in.Last = index
	if e.Type == raft.LogCommand && index > after {
		f(index, e.Term, e.Data)
	}
	return nil
}
