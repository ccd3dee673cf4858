package chunk

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/objcache/objcache"
)

// BenchmarkWriteSync is the durable write path: each of n writers writes and waits for its Sync. Compare BenchmarkRawDirect.
func BenchmarkWriteSync(b *testing.B) {
	for _, c := range []struct {
		name    string
		size    int
		writers int
		inPlace bool
	}{
		{"log-1MiB-16", mib, 16, false}, {"inplace-1MiB-16", mib, 16, true}, {"log-1MiB-1", mib, 1, false},
		{"log-128KiB-16", 128 * kib, 16, false}, {"log-4KiB-16", 4 * kib, 16, false},
	} {
		for _, buffered := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/buffered=%v", c.name, buffered), func(b *testing.B) {
				s := newStore(b, Options{Budget: NewBudget(16<<30, 0), SegmentSize: 256 * mib, Buffered: buffered})
				data := alignedBuffer(c.size)
				copy(data, content(1, c.size))
				b.SetBytes(int64(c.size))
				b.ResetTimer()
				var next atomic.Int64
				var wg sync.WaitGroup
				for range c.writers {
					wg.Go(func() {
						for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
							key, off := objcache.ChunkKey{Ino: 1, Index: uint32(i / 16)}, i%16*int64(mib)
							if !c.inPlace {
								key, off = objcache.ChunkKey{Ino: 1, Index: uint32(i % 1000)}, min(4097, objcache.ChunkSize-int64(c.size))
							}
							pl, err := s.Write(context.Background(), key, off, data)
							if err == nil {
								err = s.Sync(context.Background())
							}
							if err != nil {
								b.Error(err)
								return
							}
							s.Free(key, pl, uint64(i))
							if !c.inPlace || i%256 == 0 {
								s.Durable(uint64(max(0, i-2*int64(c.writers))))
							}
						}
					})
				}
				wg.Wait()
			})
		}
	}
}

// BenchmarkRawDirect is what the disk gives: 16 goroutines overwrite an allocated file with O_DIRECT, without any fdatasync.
func BenchmarkRawDirect(b *testing.B) {
	for _, fresh := range []bool{false, true} {
		b.Run(fmt.Sprintf("fresh=%v", fresh), func(b *testing.B) {
			const size = 1 << 30
			f, err := osFS{}.Open(b.TempDir()+"/raw", true, true)
			if err != nil {
				b.Skip("no O_DIRECT here: ", err)
			}
			defer os.Remove(f.(osFile).Name())
			if err := f.Allocate(0, size); err != nil {
				b.Fatal(err)
			}
			data := alignedBuffer(mib)
			copy(data, content(1, mib))
			for off := int64(0); off < size && !fresh; off += mib {
				if _, err := f.WriteAt(data, off); err != nil {
					b.Fatal(err)
				}
			}
			b.SetBytes(mib)
			b.ResetTimer()
			var next atomic.Int64
			var wg sync.WaitGroup
			for range 16 {
				wg.Go(func() {
					for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
						if _, err := f.WriteAt(data, i*mib%size); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			if err := f.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkReadClean reads verified bytes from the page cache.
func BenchmarkReadClean(b *testing.B) {
	s := newStore(b, Options{})
	data := content(1, mib)
	fill(b, s, someKey, "v", 0, data)
	b.SetBytes(mib)
	for b.Loop() {
		if ok, err := s.ReadClean(someKey, "v", 0, data); !ok || err != nil {
			b.Fatal(ok, err)
		}
	}
}

// BenchmarkFill caches 1 MiB pieces of many chunks under a budget that evicts all the time.
func BenchmarkFill(b *testing.B) {
	s := newStore(b, Options{Budget: NewBudget(2<<30, 0)})
	data := content(1, mib)
	b.SetBytes(mib)
	missed := 0
	for i := 0; b.Loop(); i++ {
		if s.Fill(objcache.ChunkKey{Ino: objcache.Ino(i / 16)}, "v", int64(i%16)*mib, data) != nil {
			missed++
		}
	}
	b.ReportMetric(float64(missed)/float64(b.N), "uncached/op")
}
