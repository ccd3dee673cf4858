//go:build tools

// Package tools pins MinIO, an S3 server that benchmarks and the contract suite run as an external process, in a module
// of its own. MinIO is AGPL: no package of objcache imports or links it. It knows nothing of objcache.
package tools

import _ "github.com/minio/minio"
