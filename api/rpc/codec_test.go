package rpc

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

func noise(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// cut makes many buffers of one.
func cut(r *rand.Rand, b []byte) mem.BufferSlice {
	var out mem.BufferSlice
	for len(b) > 0 {
		n := min(len(b), 1+r.IntN(16<<10))
		out = append(out, mem.SliceBuffer(b[:n]))
		b = b[n:]
	}
	return out
}

var sizes = []int{0, 1, 100, largeBytes - 1, largeBytes, largeBytes + 1, 1 << 20, stageBytes / 4, stageBytes/4 + 1, stageBytes - 3, stageBytes, stageBytes + 1}

func TestCodec_IsProtobufOnTheWire(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range sizes {
		data := noise(r, n)
		for _, m := range []proto.Message{
			&Request{Header: &Header{Client: 1 << 60, Seq: 7, Start: -1}, Op: &Request_Stage{Stage: &StageRequest{
				Ino: r.Uint64(), Chunk: 3, Generation: 9, Seq: 1 << 40, Off: 65536, Data: data}}},
			&Request{Op: &Request_Stage{Stage: &StageRequest{Data: data}}},
			&Request{Op: &Request_Append{Append: &AppendRequest{Ino: 5, Data: data}}},
			&Reply{Result: &Reply_Read{Read: &ReadReply{Data: data}}},
			&Reply{Failure: &Failure{Message: "x"}, Result: &Reply_Read{Read: &ReadReply{Data: data}}},
			&Reply{Failure: &Failure{Message: string(bytes.Repeat([]byte("y"), n))}},
		} {
			ours, err := Codec{}.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			theirs := proto.Clone(m)
			proto.Reset(theirs)
			if err := proto.Unmarshal(ours.Materialize(), theirs); err != nil || !proto.Equal(m, theirs) {
				t.Fatalf("%T with %d bytes is read differently by others: %v", m, n, err)
			}
			plain, err := proto.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			for _, wire := range [][]byte{ours.Materialize(), plain} {
				got := proto.Clone(m)
				proto.Reset(got)
				if err := (Codec{}).Unmarshal(cut(r, wire), got); err != nil || !proto.Equal(m, got) {
					t.Fatalf("%T with %d bytes is read differently: %v", m, n, err)
				}
				if q, ok := got.(*Request); ok {
					Recycle(q)
				}
			}
		}
	}
}

func TestCodec_ReadsIntoTheCallersBuffer(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, n := range sizes {
		data := noise(r, n)
		wire, err := Codec{}.Marshal(&Reply{Result: &Reply_Read{Read: &ReadReply{Data: data}}})
		if err != nil {
			t.Fatal(err)
		}
		for _, room := range []int{n, n + 5, n / 2} {
			dst := make([]byte, room)
			into := &Into{Reply: &Reply{}, Dst: dst}
			if err := (Codec{}).Unmarshal(cut(r, wire.Materialize()), into); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(into.GetRead().GetData(), data) {
				t.Fatalf("%d bytes into %d differ", n, room)
			}
			if n >= largeBytes && room >= n && !bytes.Equal(dst[:n], data) {
				t.Errorf("%d bytes were not put into the buffer of %d", n, room)
			}
		}
	}
}

func FuzzCodec_ReadsWhatProtobufReads(f *testing.F) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, m := range []proto.Message{
		&Request{Header: &Header{Client: 4}, Op: &Request_Stage{Stage: &StageRequest{Ino: 1, Data: noise(r, largeBytes)}}},
		&Reply{Result: &Reply_Read{Read: &ReadReply{Data: noise(r, largeBytes)}}},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b[:64])
	}
	f.Fuzz(func(t *testing.T, head []byte) {
		wire := slices.Concat(head, make([]byte, largeBytes))
		for _, m := range []proto.Message{&Request{}, &Reply{}} {
			want := proto.Clone(m)
			werr := proto.Unmarshal(wire, want)
			err := Codec{}.Unmarshal(cut(rand.New(rand.NewPCG(1, 1)), wire), m)
			if (err == nil) != (werr == nil) || err == nil && !proto.Equal(m, want) {
				t.Fatalf("%T: %v, protobuf: %v", m, err, werr)
			}
		}
	})
}
