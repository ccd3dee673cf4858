//go:build !failpoints

package failpoint

import "net/http"

// Enabled reports whether this program was built with failpoints.
const Enabled = false

// Hit passes a point.
func Hit(Point) {}

// Fail passes a point whose step may fail; the error is what it is armed for.
func Fail(Point) error { return nil }

// Handle lets /failpoints arm points of this process and count who passed.
func Handle(*http.ServeMux) {}

// Number is what the environment says for one of the names above; 0 without the tag, and without a word.
func Number(string) int { return 0 }
