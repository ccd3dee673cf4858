package external

import "github.com/objcache/objcache"

// CheckMeta is the rule for user metadata that every store keeps unchanged: names of lower case letters, digits, '-', '_' and '.',
// values of printable ASCII without a space at either end. Errors: Invalid.
func CheckMeta(meta map[string]string) error {
	for k, v := range meta {
		if k == "" || !all(k, metaNameByte) {
			return objcache.Errorf(objcache.Invalid, "metadata name %q", k)
		}
		if !all(v, metaValueByte) || v != "" && (v[0] == ' ' || v[len(v)-1] == ' ') {
			return objcache.Errorf(objcache.Invalid, "metadata %s: value %q", k, v)
		}
	}
	return nil
}

func all(s string, ok func(byte) bool) bool {
	for i := range len(s) {
		if !ok(s[i]) {
			return false
		}
	}
	return true
}

func metaNameByte(c byte) bool {
	return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.'
}

func metaValueByte(c byte) bool { return ' ' <= c && c <= '~' }
