//go:build tools

// Package tools pins versitygw, the S3 server of the integration tests, in a module of its own so that its
// dependencies never reach the product's. It promises a build from the module proxy alone. It knows nothing of objcache.
package tools

import _ "github.com/versity/versitygw/cmd/versitygw"
