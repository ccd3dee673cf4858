package meta

import (
	"encoding/binary"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/ring"
)

// SessionKey is the key of a session's row, at the owner of its ClientId.
func SessionKey(c objcache.ClientID) []byte {
	b := binary.BigEndian.AppendUint64([]byte{spaceGroup, 's'}, ring.HashClient(c))
	return binary.BigEndian.AppendUint64(b, uint64(c))
}

// SessionBounds are the bounds of the rows of SessionKey; ParseSessionKey is its inverse.
func SessionBounds() (lower, upper []byte) {
	return []byte{spaceGroup, 's'}, []byte{spaceGroup, 's' + 1}
}

// ParseSessionKey is the inverse of SessionKey.
func ParseSessionKey(key []byte) (objcache.ClientID, bool) {
	if len(key) != 18 || key[0] != spaceGroup || key[1] != 's' {
		return 0, false
	}
	return objcache.ClientID(binary.BigEndian.Uint64(key[10:])), true
}

func clientKey(kind byte, c objcache.ClientID) []byte {
	return binary.BigEndian.AppendUint64([]byte{spaceGroup, kind}, uint64(c))
}

func parseClientKey(kind byte, key []byte) (objcache.ClientID, bool) {
	if len(key) != 10 || key[0] != spaceGroup || key[1] != kind {
		return 0, false
	}
	return objcache.ClientID(binary.BigEndian.Uint64(key[2:])), true
}

// EndedKey is the key of the row that says that a session has ended, in every group.
func EndedKey(c objcache.ClientID) []byte { return clientKey('e', c) }

// ParseEndedKey is the inverse of EndedKey.
func ParseEndedKey(key []byte) (objcache.ClientID, bool) { return parseClientKey('e', key) }

// EndedBounds are the bounds of the rows of EndedKey.
func EndedBounds() (lower, upper []byte) { return []byte{spaceGroup, 'e'}, []byte{spaceGroup, 'e' + 1} }

// AcknowledgedKey is the key of the row that says which results a client has.
func AcknowledgedKey(c objcache.ClientID) []byte { return clientKey('k', c) }

// ParseAcknowledgedKey is the inverse of AcknowledgedKey.
func ParseAcknowledgedKey(key []byte) (objcache.ClientID, bool) { return parseClientKey('k', key) }

// AcknowledgedBounds are the bounds of the rows of AcknowledgedKey.
func AcknowledgedBounds() (lower, upper []byte) {
	return []byte{spaceGroup, 'k'}, []byte{spaceGroup, 'k' + 1}
}
