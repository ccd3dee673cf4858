//go:build integration

package mounter_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/objcache/objcache/fuse/fusetest"
)

const modelMax = 3 << 20 // bytes a file may grow to

// modelFile is a file on a mount beside the bytes it should have.
type modelFile struct {
	t    *testing.T
	r    *rand.Rand
	path string
	f    *os.File
	want []byte
	log  []string
}

func (m *modelFile) note(format string, args ...any) {
	m.log = append(m.log, fmt.Sprintf(format, args...))
}

func (m *modelFile) check(err error) {
	m.t.Helper()
	if err != nil {
		m.fail("%v", err)
	}
}

func (m *modelFile) fail(format string, args ...any) {
	m.t.Helper()
	tail := m.log[max(0, len(m.log)-25):]
	for _, l := range tail {
		m.t.Log(l)
	}
	m.t.Fatalf(format, args...)
}

func (m *modelFile) size(n int64) {
	if n > int64(len(m.want)) {
		m.want = append(m.want, make([]byte, n-int64(len(m.want)))...)
	}
}

func (m *modelFile) step() {
	size := int64(len(m.want))
	off, n := m.r.Int64N(size+1), 1+m.r.Int64N(200000)
	if m.r.IntN(3) == 0 {
		n = 1 + m.r.Int64N(5000)
	}
	n = min(n, modelMax-off)
	switch op := m.r.IntN(20); {
	case op < 6 && n > 0:
		p := noise(int(n+7)&^7, m.r.Uint64())[:n]
		m.note("write %d at %d", n, off)
		_, err := m.f.WriteAt(p, off)
		m.check(err)
		m.size(off + n)
		copy(m.want[off:], p)
	case op < 12:
		m.read(m.f, off, n)
	case op == 12:
		to := m.r.Int64N(modelMax)
		m.note("truncate to %d", to)
		m.check(m.f.Truncate(to))
		m.want = m.want[:min(size, to):min(size, to)]
		m.size(to)
	case op == 13 && size > 0:
		m.store(off, min(n, size-off))
	case op == 14:
		m.note("fsync")
		m.check(m.f.Sync())
	case op < 17:
		m.reopen()
	case op == 17 && n > 0:
		m.note("punch %d at %d", n, off)
		m.check(unix.Fallocate(int(m.f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n))
		clear(m.want[off:min(off+n, size)])
	case op == 18 && n > 0:
		m.note("fallocate %d at %d", n, off)
		m.check(unix.Fallocate(int(m.f.Fd()), 0, off, n))
		m.size(off + n)
	default:
		m.note("read by another open")
		f, err := os.Open(m.path)
		m.check(err)
		m.read(f, off, n)
		m.check(f.Close())
	}
}

func (m *modelFile) read(f *os.File, off, n int64) {
	m.note("read %d at %d", n, off)
	got := make([]byte, n)
	k, _ := f.ReadAt(got, off)
	end := min(off+n, int64(len(m.want)))
	if want := m.want[min(off, end):end]; !bytes.Equal(got[:k], want) {
		i := 0
		for i < min(k, len(want)) && got[i] == want[i] {
			i++
		}
		m.fail("read %d at %d gives %d bytes of %d, first difference at %d", n, off, k, len(want), off+int64(i))
	}
	st, err := f.Stat()
	m.check(err)
	if st.Size() != int64(len(m.want)) {
		m.fail("size %d, want %d", st.Size(), len(m.want))
	}
}

func (m *modelFile) store(off, n int64) {
	if n <= 0 {
		return
	}
	m.note("store %d at %d through a mapping", n, off)
	p := noise(int(n+7)&^7, m.r.Uint64())[:n]
	mapped(m.t, "store", m.path, off, n, p)
	copy(m.want[off:], p)
}

func (m *modelFile) reopen() {
	m.note("close and open")
	m.check(m.f.Close())
	var err error
	m.f, err = os.OpenFile(m.path, os.O_RDWR, 0)
	m.check(err)
}

func TestFile_BehavesAsAPlainModelUnderRandomOperations(t *testing.T) {
	for mode, change := range modes {
		t.Run(mode, func(t *testing.T) {
			c := fusetest.New()
			mounts := []*mount{mountOn(t, c, change), mountOn(t, c, change)}
			for seed := range uint64(4) {
				m := &modelFile{t: t, r: rand.New(rand.NewPCG(seed, 7))}
				name := fmt.Sprintf("f%d", seed)
				must(t, os.WriteFile(mounts[0].path(name), nil, 0o644))
				for round := range 8 {
					m.path = mounts[round%2].path(name)
					m.note("on mount %d", round%2)
					var err error
					m.f, err = os.OpenFile(m.path, os.O_RDWR, 0)
					m.check(err)
					for range 60 {
						m.step()
					}
					m.check(m.f.Close())
					if got, _ := c.Content(name); !bytes.Equal(got, m.want) {
						m.fail("after the close the cluster differs")
					}
				}
			}
		})
	}
}
