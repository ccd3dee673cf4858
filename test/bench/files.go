package main

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"
)

const step1M = 1 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// content is n bytes that are the same for every program and no two MiB of which are.
type content struct{ block []byte }

func newContent() content {
	c := content{make([]byte, step1M)}
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(c.block) // never fails
	return c
}

// ReadAt is io.ReaderAt without an end.
func (c content) ReadAt(p []byte, off int64) (int, error) {
	for n := 0; n < len(p); {
		at := off + int64(n)
		m := copy(p[n:], c.block[at%step1M:])
		if at%step1M == 0 && m >= 8 { // the number of the MiB
			for i := range 8 {
				p[n+i] ^= byte(at >> 20 >> (8 * i))
			}
		}
		n += m
	}
	return len(p), nil
}

func (c content) sum(n int64) (uint32, error) {
	h := crc32.New(castagnoli)
	_, err := io.CopyBuffer(struct{ io.Writer }{h}, io.NewSectionReader(c, 0, n), make([]byte, step1M))
	return h.Sum32(), err
}

// readFile reads a file from its beginning, 1 MiB at a time, as dd does, and returns how long it took from open to end.
func readFile(path string, size int64) (time.Duration, error) {
	buf := make([]byte, step1M)
	begin := time.Now()
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var n int64
	for {
		m, err := f.Read(buf)
		n += int64(m)
		if err == io.EOF {
			break
		}
		if err != nil {
			return 0, err
		}
	}
	took := time.Since(begin)
	if n != size {
		return 0, fmt.Errorf("%s: %d bytes instead of %d", path, n, size)
	}
	return took, nil
}

// checkFile fails unless the file has content's bytes.
func checkFile(path string, size int64, c content) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	h := crc32.New(castagnoli)
	n, err := io.CopyBuffer(struct{ io.Writer }{h}, struct{ io.Reader }{f}, make([]byte, step1M))
	if err != nil {
		return err
	}
	want, err := c.sum(size)
	if err != nil {
		return err
	}
	if n != size || h.Sum32() != want {
		return fmt.Errorf("%s: wrong bytes (%d, checksum %08x)", path, n, h.Sum32())
	}
	return nil
}

// writeFile makes a file of content's bytes, 1 MiB at a time, and returns how long it took from open until close, fsync included if wanted.
func writeFile(path string, size int64, c content, sync bool) (time.Duration, error) {
	buf := make([]byte, min(size, step1M))
	begin := time.Now()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
	if err != nil {
		return 0, err
	}
	for at := int64(0); at < size && err == nil; at += int64(len(buf)) {
		n := min(size-at, int64(len(buf)))
		_, _ = c.ReadAt(buf[:n], at) // never fails
		_, err = f.Write(buf[:n])
	}
	if sync && err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	return time.Since(begin), err
}

// appear waits until a name is seen: mounts look at S3 again only when what they know has expired.
func appear(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	err := until(ctx, func() bool { _, err := os.Stat(path); return err == nil })
	if err != nil {
		_, serr := os.Stat(path)
		return fmt.Errorf("%s does not appear: %w", filepath.Base(path), errors.Join(err, serr))
	}
	return nil
}
