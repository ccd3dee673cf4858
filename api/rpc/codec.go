package rpc

import (
	"sync"

	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Codec speaks protobuf as gRPC's own codec does, byte for byte on the wire, but copies the bytes of large messages less: those of a StageRequest and of
// a ReadReply go to the transport as they are, and come from it into their place at once.
//
// What is marshalled so must not change before the call has ended without an error; after an error the transport may still be reading it.
type Codec struct{}

var _ encoding.CodecV2 = Codec{}

// Name is that of gRPC's own codec: on the wire they are the same.
func (Codec) Name() string { return grpcproto.Name }

func plain() encoding.CodecV2 { return encoding.GetCodecV2(grpcproto.Name) }

const (
	largeBytes = 32 << 10 // from which on copying costs more than a buffer of its own
	headRoom   = 4 << 10  // in which everything but the bytes must lie
	stageBytes = 4 << 20  // of the buffers that are used again
)

// Field numbers of the large bytes and of the messages that hold them.
const (
	requestStage = 22
	stageData    = 6
	replyRead    = 13
	readData     = 1
)

// Into is a Reply whose bytes, if it is a ReadReply of no more than len(Dst), are put into Dst.
type Into struct {
	*Reply
	Dst []byte
}

// Marshal encodes a message.
func (Codec) Marshal(v any) (mem.BufferSlice, error) {
	switch m := v.(type) {
	case *Request:
		if s := m.GetStage(); len(s.GetData()) >= largeBytes {
			rest := &StageRequest{Ino: s.GetIno(), Chunk: s.GetChunk(), Generation: s.GetGeneration(), Seq: s.GetSeq(), Off: s.GetOff()}
			return join(&Request{Header: m.GetHeader()}, requestStage, rest, stageData, s.GetData())
		}
	case *Reply:
		if r := m.GetRead(); len(r.GetData()) >= largeBytes {
			return join(&Reply{Failure: m.GetFailure()}, replyRead, &ReadReply{}, readData, r.GetData())
		}
	case *Into:
		return plain().Marshal(m.Reply)
	}
	return plain().Marshal(v)
}

// join encodes outer with inner as its field op, whose field bytes is data. data comes last, as a buffer of its own.
func join(outer proto.Message, op protowire.Number, inner proto.Message, bytes protowire.Number, data []byte) (mem.BufferSlice, error) {
	in, err := proto.Marshal(inner)
	if err != nil {
		return nil, err
	}
	in = protowire.AppendTag(in, bytes, protowire.BytesType)
	in = protowire.AppendVarint(in, uint64(len(data)))
	head, err := proto.Marshal(outer)
	if err != nil {
		return nil, err
	}
	head = protowire.AppendTag(head, op, protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(len(in)+len(data)))
	return mem.BufferSlice{mem.SliceBuffer(append(head, in...)), mem.SliceBuffer(data)}, nil
}

// Unmarshal decodes a message.
func (Codec) Unmarshal(data mem.BufferSlice, v any) error {
	switch m := v.(type) {
	case *Request:
		if p, ok := part(data, requestStage, stageData); ok {
			s := &StageRequest{}
			if err := p.into(m, s); err != nil {
				return err
			}
			s.Data = p.copy(data, stageBuffer(p.size))
			m.Op = &Request_Stage{Stage: s}
			return nil
		}
	case *Reply:
		return unmarshalReply(data, m, nil)
	case *Into:
		return unmarshalReply(data, m.Reply, m.Dst)
	}
	return plain().Unmarshal(data, v)
}

func unmarshalReply(data mem.BufferSlice, m *Reply, dst []byte) error {
	p, ok := part(data, replyRead, readData)
	if !ok {
		return plain().Unmarshal(data, m)
	}
	r := &ReadReply{}
	if err := p.into(m, r); err != nil {
		return err
	}
	if len(dst) < p.size {
		dst = make([]byte, p.size)
	}
	r.Data = p.copy(data, dst[:p.size])
	m.Result = &Reply_Read{Read: r}
	return nil
}

// parted is a message whose large bytes come last.
type parted struct {
	outer, inner []byte // encoded, without the bytes
	off, size    int    // of the bytes in the message
}

func (p parted) into(outer, inner proto.Message) error {
	if err := proto.Unmarshal(p.outer, outer); err != nil {
		return err
	}
	return proto.Unmarshal(p.inner, inner)
}

// copy fills dst with the bytes.
func (p parted) copy(data mem.BufferSlice, dst []byte) []byte {
	skip, at := p.off, 0
	for _, b := range data {
		src := b.ReadOnlyData()
		if skip >= len(src) {
			skip -= len(src)
			continue
		}
		at += copy(dst[at:], src[skip:])
		skip = 0
	}
	return dst
}

// part finds large bytes at the end of an encoded message; false: it has none, or not there, which any other encoder is free to do.
func part(data mem.BufferSlice, op, bytes protowire.Number) (parted, bool) {
	total := data.Len()
	if total < largeBytes {
		return parted{}, false
	}
	head := make([]byte, headRoom)
	head = head[:data.CopyTo(head)]
	outer, at, ok := field(head, 0, total, op)
	if !ok {
		return parted{}, false
	}
	inner, off, ok := field(head, at, total, bytes)
	if !ok {
		return parted{}, false
	}
	return parted{outer, inner, off, total - off}, true
}

// field walks over the fields of the message that begins at from and returns what is before the field want, and where that field's content begins, if it is
// the last one and ends where the whole message does.
func field(head []byte, from, total int, want protowire.Number) (before []byte, at int, ok bool) {
	for at = from; at < len(head); {
		num, typ, n := protowire.ConsumeTag(head[at:])
		if n < 0 {
			return nil, 0, false
		}
		if num == want && typ == protowire.BytesType {
			size, m := protowire.ConsumeVarint(head[at+n:])
			if m < 0 || size != uint64(total-at-n-m) {
				return nil, 0, false
			}
			return head[from:at], at + n + m, true
		}
		m := protowire.ConsumeFieldValue(num, typ, head[at+n:])
		if m < 0 {
			return nil, 0, false
		}
		at += n + m
	}
	return nil, 0, false
}

var stageBuffers = sync.Pool{New: func() any { return new([stageBytes]byte) }}

// stageBuffer returns room for n staged bytes. Large ones are used again, see Recycle, and begin on a page, as disks like it.
func stageBuffer(n int) []byte {
	if n > stageBytes/4 && n <= stageBytes {
		return stageBuffers.Get().(*[stageBytes]byte)[:n]
	}
	return make([]byte, n)
}

// Recycle lets the bytes of a staged write that came over the network be used again. Nobody may look at the request any more.
func Recycle(r *Request) {
	s := r.GetStage()
	if s == nil || cap(s.GetData()) != stageBytes {
		return
	}
	stageBuffers.Put((*[stageBytes]byte)(s.Data[:stageBytes]))
	s.Data = nil
}
