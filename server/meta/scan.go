package meta

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/record"
)

// Scan calls f for every row in [lower, upper) until it returns false. Key and value are only valid during the call.
func Scan(r Reader, lower, upper []byte, f func(key, value []byte) (bool, error)) (err error) {
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return fmt.Errorf("scan rows: %w", err)
	}
	defer func() {
		if cerr := it.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("scan rows: %w", cerr)
		}
	}()
	for ok := it.First(); ok; ok = it.Next() {
		v, err := it.ValueAndErr()
		if err != nil {
			return fmt.Errorf("scan rows: %w", err)
		}
		if more, err := f(it.Key(), v); err != nil || !more {
			return err
		}
	}
	return nil
}

// ScanEntries calls f for the rows of a directory's names behind after, tombstones included, in the order of their bytes.
func ScanEntries(r Reader, dir objcache.Ino, after string, f func(name string, row *record.DirEntry) (bool, error)) error {
	lo, hi := EntryBounds(dir, after)
	return Scan(r, lo, hi, func(k, v []byte) (bool, error) {
		row := &record.DirEntry{}
		if err := decode(v, row); err != nil {
			return false, objcache.Errorf(objcache.Corrupt, "entry %q of directory %d: %w", EntryName(k), dir, err)
		}
		return f(EntryName(k), row)
	})
}

// ScanCookies calls f for the live entries of a directory behind a readdir position, in that order.
func ScanCookies(r Reader, dir objcache.Ino, cookie uint64, f func(name string, row *record.DirEntry) (bool, error)) error {
	lo, hi := CookieBounds(dir, cookie)
	return Scan(r, lo, hi, func(_, v []byte) (bool, error) {
		name := string(v)
		row, err := Entry(r, dir, name)
		if err != nil {
			return false, err
		}
		if row.GetIno() == 0 {
			return true, nil
		}
		return f(name, row)
	})
}
