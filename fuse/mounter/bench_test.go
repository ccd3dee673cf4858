//go:build integration

package mounter_test

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/objcache/objcache/fuse/fusetest"
)

const benchBytes = 256 << 20

func writeZeros(b *testing.B, path string, n int) {
	b.Helper()
	f, err := os.Create(path)
	must(b, err)
	buf := noise(1<<20, 1)
	for range n >> 20 {
		_, err := f.Write(buf)
		must(b, err)
	}
	must(b, f.Close())
}

// dropPages makes the next read of a file come from the disk or the mount process, not from the kernel's pages.
func dropPages(b *testing.B, paths ...string) {
	b.Helper()
	for _, p := range paths {
		f, err := os.Open(p)
		must(b, err)
		must(b, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
		must(b, f.Close())
	}
}

func readThrough(b *testing.B, path string) {
	b.Helper()
	f, err := os.Open(path)
	must(b, err)
	buf := make([]byte, 1<<20)
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{f}, buf)
	must(b, err)
	must(b, f.Close())
	if n != benchBytes {
		b.Fatalf("read %d bytes", n)
	}
}

// BenchmarkRead reads a file a second time. The pages of its name are dropped; the cache file's own pages stay, as they would after a first read.
func BenchmarkRead_SecondTime(b *testing.B) {
	b.Run("ext4", func(b *testing.B) {
		path := filepath.Join(b.TempDir(), "f")
		writeZeros(b, path, benchBytes)
		b.SetBytes(benchBytes)
		for b.Loop() {
			readThrough(b, path)
		}
	})
	for mode, change := range modes {
		b.Run(mode, func(b *testing.B) {
			m := mountOn(b, fusetest.New(), change)
			writeZeros(b, m.path("f"), benchBytes)
			b.SetBytes(benchBytes)
			for b.Loop() {
				dropPages(b, m.path("f"))
				readThrough(b, m.path("f"))
			}
		})
	}
}

// BenchmarkWrite writes and closes a file of 1 GiB on a cluster that forgets bytes.
func BenchmarkWrite_AndCloseOneGiB(b *testing.B) {
	b.Run("ext4", func(b *testing.B) {
		path := filepath.Join(b.TempDir(), "f")
		b.SetBytes(1 << 30)
		for b.Loop() {
			writeZeros(b, path, 1<<30)
			must(b, os.Remove(path))
		}
	})
	for mode, change := range modes {
		b.Run(mode, func(b *testing.B) {
			c := fusetest.New()
			c.Discard = true
			m := mountOn(b, c, change)
			b.SetBytes(1 << 30)
			for b.Loop() {
				writeZeros(b, m.path("f"), 1<<30)
				must(b, os.Remove(m.path("f")))
			}
		})
	}
}

func BenchmarkStat_Cached(b *testing.B) {
	m := mountOn(b, fusetest.New())
	must(b, os.WriteFile(m.path("f"), nil, 0o644))
	for b.Loop() {
		_, err := os.Lstat(m.path("f"))
		must(b, err)
	}
}

func BenchmarkCreate_WriteCloseSmall(b *testing.B) {
	m := mountOn(b, fusetest.New())
	data := noise(4096, 1)
	for b.Loop() {
		must(b, os.WriteFile(m.path("f"), data, 0o644))
		must(b, os.Remove(m.path("f")))
	}
}
