package meta

import (
	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/record"
	"google.golang.org/protobuf/proto"
)

// Transplant changes a row that another log brought about so that it can begin the rows of a new one: indexes of the old log mean nothing there, and
// what a promise says of places lies on another disk.
func Transplant(key, value []byte) ([]byte, error) {
	if len(key) == 0 {
		return value, nil
	}
	kind := byte(0)
	switch {
	case key[0] == spaceHashed && len(key) > 9:
		kind = key[9]
	case key[0] == spaceGroup && len(key) > 1:
		kind = key[1]
	}
	switch {
	case key[0] == spaceHashed && kind == 'e':
		return transplant(key, value, &record.DirEntry{}, func(e *record.DirEntry) { e.Changed = 0 })
	case key[0] == spaceHashed && kind == 'i':
		return transplant(key, value, &record.Inode{}, func(in *record.Inode) {
			if in.GetDir() != nil {
				in.Dir.MarkerAt = 0
			}
		})
	case key[0] == spaceGroup && kind == 'p':
		return transplant(key, value, &record.Prepared{}, func(p *record.Prepared) {
			p.Placed, p.Cleaned = nil, nil
			for _, r := range p.GetRows() {
				if v, err := Transplant(r.GetKey(), r.GetValue()); err == nil && r.Value != nil {
					r.Value = v
				}
			}
		})
	}
	return value, nil
}

func transplant[M proto.Message](key, value []byte, m M, change func(M)) ([]byte, error) {
	if err := proto.Unmarshal(value, m); err != nil {
		return nil, objcache.Errorf(objcache.Corrupt, "row %x: %w", key, err)
	}
	change(m)
	return proto.MarshalOptions{Deterministic: true}.Marshal(m)
}
