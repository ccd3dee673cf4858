// Package memstore is external storage in memory, for tests: a bucket that honours every condition of package external and
// fails on demand. It promises the order of effects of a real store (each request takes effect at one moment, or not at
// all) and waits only on timers and contexts, so it runs inside testing/synctest. It knows nothing of S3 or HTTP.
package memstore

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/external"
)

// Config says what kind of store to imitate. The zero value is the best one.
type Config struct {
	// Ignores lists the capabilities that the store lacks: it accepts such conditions and ignores them, as poor stores do;
	// without CopyPart it refuses (NotSupported).
	Ignores external.Capabilities
	// CompleteTwice makes a repeated CompleteUpload succeed as on AWS; otherwise it is NoUpload as on MinIO.
	CompleteTwice bool
	// MinPart is the least size in bytes of all parts but the last. Default 5 MiB.
	MinPart int64
}

// Store is one bucket. It is safe for concurrent use.
type Store struct {
	config Config

	mu struct {
		sync.Mutex
		keys    []string // sorted
		objects map[string]*object
		uploads map[string]*upload
		nextID  int
		faults  []*fault
		counts  map[external.Op]int
		read    int64 // bytes of bodies that left
		written int64 // bytes of bodies that arrived
	}
}

type object struct {
	data     []byte // never changed
	etag     string
	modified time.Time
	meta     map[string]string
}

type upload struct {
	external.Upload
	meta  map[string]string
	parts map[int32]part
	done  string // the ETag it completed with
}

type part struct {
	data []byte
	etag string
}

var _ external.Store = (*Store)(nil)

// New returns an empty bucket.
func New(c Config) *Store {
	if c.MinPart == 0 {
		c.MinPart = 5 << 20
	}
	s := &Store{config: c}
	s.mu.objects = map[string]*object{}
	s.mu.uploads = map[string]*upload{}
	s.mu.counts = map[external.Op]int{}
	return s
}

// Capabilities is everything but what Config.Ignores.
func (s *Store) Capabilities() external.Capabilities {
	i := s.config.Ignores
	return external.Capabilities{
		ConditionalPut: !i.ConditionalPut, ConditionalComplete: !i.ConditionalComplete, CopyPart: !i.CopyPart, CopyIfMatch: !i.CopyIfMatch,
	}
}

// Set writes an object behind everybody's back: not counted, never failing. It returns the ETag.
func (s *Store) Set(key string, data []byte, meta map[string]string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.putLocked(key, bytes.Clone(data), etagOf(data), meta)
}

// Remove deletes an object behind everybody's back.
func (s *Store) Remove(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deleteLocked(key)
}

// Objects is a copy of all there is: what the bucket's owner would find with another tool.
func (s *Store) Objects() map[string][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[string][]byte, len(s.mu.objects))
	for k, o := range s.mu.objects {
		all[k] = bytes.Clone(o.data)
	}
	return all
}

// Uploads lists the uploads of all keys that are neither completed nor aborted, oldest first.
func (s *Store) Uploads() []external.Upload {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.uploadsLocked(func(string) bool { return true })
}

// Count is how many requests of one kind arrived, failed ones and their repetitions included.
func (s *Store) Count(op external.Op) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.counts[op]
}

// Counts is Count of every kind that was asked for.
func (s *Store) Counts() map[external.Op]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.mu.counts)
}

// Bytes is how many bytes of bodies were read from and written to the store by requests.
func (s *Store) Bytes() (read, written int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.read, s.mu.written
}

func (s *Store) putLocked(key string, data []byte, etag string, meta map[string]string) string {
	if _, ok := s.mu.objects[key]; !ok {
		i, _ := slices.BinarySearch(s.mu.keys, key)
		s.mu.keys = slices.Insert(s.mu.keys, i, key)
	}
	// S3 tells whole seconds.
	s.mu.objects[key] = &object{data: data, etag: etag, modified: time.Now().UTC().Truncate(time.Second), meta: maps.Clone(meta)}
	return etag
}

func (s *Store) deleteLocked(key string) {
	if _, ok := s.mu.objects[key]; !ok {
		return
	}
	i, _ := slices.BinarySearch(s.mu.keys, key)
	s.mu.keys = slices.Delete(s.mu.keys, i, i+1)
	delete(s.mu.objects, key)
}

// checkLocked is the condition on a key that is about to be written.
func (s *Store) checkLocked(key string, c external.Condition, honoured bool) error {
	o, exists := s.mu.objects[key]
	switch {
	case !honoured:
		return nil
	case c.IfNone && exists:
		return fail(objcache.Precondition, key, "exists")
	case c.IfMatch != "" && !exists:
		return fail(objcache.NotExist, key, "is gone, wanted ETag %s", c.IfMatch)
	case c.IfMatch != "" && o.etag != c.IfMatch:
		return fail(objcache.Precondition, key, "has ETag %s, wanted %s", o.etag, c.IfMatch)
	}
	return nil
}

func (s *Store) uploadsLocked(match func(key string) bool) []external.Upload {
	var ups []external.Upload
	for _, u := range s.mu.uploads {
		if u.done == "" && match(u.Key) {
			ups = append(ups, u.Upload)
		}
	}
	slices.SortFunc(ups, func(a, b external.Upload) int { return strings.Compare(a.ID, b.ID) })
	return ups
}

func fail(k objcache.Kind, key, format string, args ...any) error {
	return objcache.Errorf(k, "memstore: %q %s", key, fmt.Sprintf(format, args...))
}

func etagOf(data []byte) string {
	sum := md5.Sum(data)
	return hex.EncodeToString(sum[:])
}

// readBody takes the bytes in before the request can take effect.
func (s *Store) readBody(ctx context.Context, body external.Body) ([]byte, error) {
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return nil, objcache.Errorf(objcache.IO, "memstore: body: %w", err)
	}
	data := make([]byte, body.Size())
	if _, err := io.ReadFull(body, data); err != nil {
		return nil, objcache.Errorf(objcache.IO, "memstore: body of %d bytes: %w", body.Size(), err)
	}
	s.mu.Lock()
	s.mu.written += int64(len(data))
	s.mu.Unlock()
	return data, ctx.Err()
}
