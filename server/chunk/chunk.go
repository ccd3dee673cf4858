// Package chunk holds the bytes of the groups of one server on local disk: dirty extents, which are never evicted, and clean
// bytes, which may be at any time. It promises that what Sync reported is on disk and that a byte which does not match its
// checksum is never handed out. It does not know which extents a version of a file consists of (that is meta's), nor any network.
package chunk
