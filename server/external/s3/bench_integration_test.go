//go:build tests3

package s3_test

import (
	"bytes"
	"io"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/objcache/objcache/server/external"
	"github.com/objcache/objcache/server/external/s3"
	"github.com/objcache/objcache/test/s3server"
)

func benchStore(b *testing.B) *s3.Store {
	b.Helper()
	s, err := s3.Open(b.Context(), s3server.MinIO(b, "bench").S3)
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// Set TMPDIR to a tmpfs, else the server's disk is what is measured.
func BenchmarkPut(b *testing.B) {
	for _, size := range []int{4 << 10, 16 << 20} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			s, data := benchStore(b), make([]byte, size)
			var n atomic.Int64
			b.SetBytes(int64(size))
			b.SetParallelism(4)
			b.RunParallel(func(pb *testing.PB) {
				key := strconv.FormatInt(n.Add(1), 10)
				for pb.Next() {
					if _, err := s.Put(b.Context(), key, bytes.NewReader(data), nil, external.Condition{}); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}

func BenchmarkGet(b *testing.B) {
	for _, size := range []int{4 << 10, 16 << 20} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			s := benchStore(b)
			if _, err := s.Put(b.Context(), "k", bytes.NewReader(make([]byte, size)), nil, external.Condition{}); err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(size))
			b.SetParallelism(4)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					r, _, err := s.Get(b.Context(), "k", 0, int64(size), "")
					if err != nil {
						b.Error(err)
						return
					}
					if _, err := io.Copy(io.Discard, r); err != nil {
						b.Error(err)
					}
					_ = r.Close()
				}
			})
		})
	}
}
